"""Dify: models as apps and tools, text models as providers, and the way through its SSRF proxy."""

from bident.connect.dify.neighbour import Dify

__all__ = ["Dify"]
