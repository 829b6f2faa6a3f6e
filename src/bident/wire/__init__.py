"""What requests and answers are: no I/O, no protocol, no event loop."""
