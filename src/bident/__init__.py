"""Bident: a local inference platform with two engines, one for tensors and one for text."""

__version__ = "0.1.0"
