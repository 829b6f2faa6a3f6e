"""Every setting of the two servers once: flag > environment > file > default."""

from bident.settings.parse import (
    canonical_flags,
    given_texts,
    parse_both_args,
    parse_tensor_args,
    parse_text_args,
    split_flags,
)
from bident.settings.setting import Setting
from bident.settings.tensor import TABLE, TensorSettings
from bident.settings.text import TEXT_TABLE, TextSettings

__all__ = [
    "TABLE",
    "TEXT_TABLE",
    "Setting",
    "TensorSettings",
    "TextSettings",
    "canonical_flags",
    "given_texts",
    "parse_both_args",
    "parse_tensor_args",
    "parse_text_args",
    "split_flags",
]
