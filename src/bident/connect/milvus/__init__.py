"""Milvus: a place for the vectors that the text engine's embedding models make."""

from bident.connect.milvus.neighbour import Milvus

__all__ = ["Milvus"]
