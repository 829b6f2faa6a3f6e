"""Pitfalls of the machine: packages, libraries, ports, networks, folders, limits. One small file for each family."""
