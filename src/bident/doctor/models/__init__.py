"""Pitfalls of models: their folders, their configurations, their files. Nothing of a model is ever executed."""
