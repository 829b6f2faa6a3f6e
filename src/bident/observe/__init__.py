"""What the server says of itself: log and metrics."""
