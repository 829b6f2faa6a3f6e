"""TLS for whatever listens: contexts from PEM files, certificates that are renewed, and how connections come in."""
