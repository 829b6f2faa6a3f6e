"""Sequence batching: requests that belong together go to the same instance, one after the other."""
