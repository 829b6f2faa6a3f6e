"""Backends: plug-ins that turn a model's files into instances that execute."""
