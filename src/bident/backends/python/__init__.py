"""The Python backend: a model's own ``model.py``, written for Triton, in a supervised process of its own."""
