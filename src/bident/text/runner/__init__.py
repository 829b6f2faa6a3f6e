"""The processes that run the models, one llama.cpp server each, and who of them may stay.

This file imports nothing: each of those processes goes through it on its way to ``child``.
"""
