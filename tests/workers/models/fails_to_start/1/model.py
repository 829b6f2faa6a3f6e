"""Raises in ``initialize``."""


class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("no weights for € in " + args["model_name"])

    def execute(self, requests):
        return []
