"""What Bident is compared with: a real Triton, and a bare loop without any of a server's duties."""
