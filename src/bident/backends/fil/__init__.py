"""Decision forests: XGBoost, LightGBM and treelite models, as Triton's fil backend serves them."""

from bident.backends.fil.backend import FilBackend

__all__ = ["FilBackend"]
