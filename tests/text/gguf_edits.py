"""Damaged copies of a real GGUF file."""

from __future__ import annotations

import mmap
import shutil
import struct
from pathlib import Path

_UINT32 = struct.pack("<I", 4)
_HEAD = 24
"""Magic, version, number of tensors, number of keys."""


def with_uint32(source: Path, target: Path, key: str, value: int) -> Path:
    """A copy whose ``key`` (a uint32) has another value."""
    shutil.copyfile(source, target)
    with target.open("r+b") as file:
        header = file.read(4096)
        name = struct.pack("<Q", len(key)) + key.encode() + _UINT32
        at = header.index(name) + len(name)
        file.seek(at)
        file.write(struct.pack("<I", value))
    return target


def with_template(source: Path, target: Path, template: str) -> Path:
    """A copy whose chat template is ``template``, which must not be longer than the one it had."""
    shutil.copyfile(source, target)
    with target.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        key = b"tokenizer.chat_template"
        at = content.find(struct.pack("<Q", len(key)) + key) + 8 + len(key) + 4
        (size,) = struct.unpack("<Q", content[at : at + 8])
        content[at + 8 : at + 8 + size] = template.encode().ljust(size)
    return target


def with_bytes(source: Path, target: Path, at: int, data: bytes) -> Path:
    """A copy with ``data`` at the offset ``at``."""
    shutil.copyfile(source, target)
    with target.open("r+b") as file:
        file.seek(at)
        file.write(data)
    return target


def cut(source: Path, target: Path, size: int) -> Path:
    """The first ``size`` bytes."""
    with source.open("rb") as file:
        target.write_bytes(file.read(size))
    return target


def with_counts(source: Path, target: Path, tensors: int, keys: int) -> Path:
    """A file of the header alone, which promises so many tensors and keys."""
    with source.open("rb") as file:
        header = file.read(4096)
    target.write_bytes(header[:8] + struct.pack("<QQ", tensors, keys) + header[_HEAD:])
    return target
