"""The gRPC door: HTTP/2 on the server's own loop (docs/decisions/0007-grpc-on-the-loop.md), and what it carries."""
