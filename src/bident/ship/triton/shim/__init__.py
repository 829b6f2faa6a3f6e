"""What stands in a shadow repository for a model whose backend a Triton lacks: one ``model.py``, copied as it is."""
