"""Destinations: the same repository on a real Triton, in containers, and on bigger machines. One room for each."""
