"""The tensor engine: a request in, answers out."""
