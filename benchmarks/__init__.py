"""Measures Bident against its peers in the same run: ``python -m benchmarks.run`` (``make bench``)."""
