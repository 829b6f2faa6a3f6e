"""Sources of the sample Python models and ensembles, as they are copied into a model repository."""
