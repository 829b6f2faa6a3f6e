"""LiteLLM's proxy: one OpenAI address for the text models, with the tensor models behind it under ``/tensor``."""

from bident.connect.litellm.neighbour import LiteLlm

__all__ = ["LiteLlm"]
