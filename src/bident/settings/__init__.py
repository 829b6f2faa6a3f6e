"""Every setting of the tensor server once: flag > environment > file > default."""

from bident.settings.parse import canonical_flags, parse_tensor_args
from bident.settings.setting import Setting
from bident.settings.tensor import TABLE, TensorSettings

__all__ = ["TABLE", "Setting", "TensorSettings", "canonical_flags", "parse_tensor_args"]
