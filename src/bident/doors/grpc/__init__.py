"""The gRPC door: HTTP/2 on the server's own loop, and the services it carries."""
