"""A real Triton behind ``bident serve tensor --engine=triton``: found, prepared, run and explained."""
