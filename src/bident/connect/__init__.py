"""Neighbours: what each of them needs to be told to use the models that are loaded now, and whether it works.

One file, or one package, for each neighbour. They know the servers through their public APIs alone.
"""
