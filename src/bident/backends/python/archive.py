"""Unpacks archives of Python environments into the cache folder: whole, or not at all."""

from __future__ import annotations

import errno
import lzma
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from pathlib import Path

from bident.errors import ConfigError
from bident.model.files import open_file

_UNPACK_SECONDS = 600
_BLOCK = tarfile.BLOCKSIZE
_CHUNK_BYTES = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DAMAGE = (OSError, tarfile.TarError, EOFError, ValueError, zlib.error, lzma.LZMAError)
"""What reading a damaged archive raises, by the place of the damage."""


def unpack(archive: Path, cache: Path, key: str) -> Path:
    """The folder below ``cache`` that holds what is in ``archive``; unpacked if nothing is there under ``key``.

    Raises ConfigError, and leaves nothing behind, if the archive is damaged, the disk is full, the
    cache folder is unusable or the environment's ``conda-unpack`` fails.
    """
    # conda-unpack writes the folder's path into the environment, so that it cannot be moved into place
    # afterwards. Instead, a file that names the folder appears when all is done.
    note = cache / f"{key}.place"
    try:
        name = note.read_text(encoding="utf-8") if note.exists() else ""
        if name.startswith(key) and (cache / name).is_dir():
            return cache / name
        cache.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{key}-", dir=cache))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"EXECUTION_ENV_PATH: {archive} cannot be unpacked, for the cache folder {cache} cannot be used: {error}; "
            "make it a folder that the server may write to, or name another with --model-cache-directory"
        ) from error
    try:
        _fill(folder, archive)
        _write_note(note, folder.name)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _fill(folder: Path, archive: Path) -> None:
    try:
        _extract(archive, folder)
    except _DAMAGE as error:
        cure = "it is damaged or no archive: copy it again, or make it anew with conda-pack"
        if isinstance(error, OSError) and error.errno in _FULL:
            cure = "make room there, or name another folder with --model-cache-directory"
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(":")
        raise ConfigError(
            f"EXECUTION_ENV_PATH: {archive} cannot be unpacked into {folder.parent}: {reason}; {cure}"
        ) from error
    _fix_prefixes(folder, archive)


def _write_note(note: Path, name: str) -> None:
    """Whole at once. Of two servers that unpack the same at a time, each uses its own folder, the next the last."""
    writing = note.with_name(f"{name}.writing")
    try:
        writing.write_text(name, encoding="utf-8")
        writing.replace(note)
    except OSError as error:
        writing.unlink(missing_ok=True)
        raise ConfigError(
            f"EXECUTION_ENV_PATH: {note} cannot be written: {error}; name another folder with --model-cache-directory"
        ) from error


def _extract(archive: Path, folder: Path) -> None:
    with open_file(archive) as file, tarfile.open(fileobj=file) as tar:
        # "tar" and not "data": environments hold links to places outside, and files of any mode.
        if hasattr(tarfile, "tar_filter"):
            tar.extractall(folder, filter="tar")
        else:
            tar.extractall(folder)
        _check_end(tar)


def _check_end(tar: tarfile.TarFile) -> None:
    """Raises OSError, EOFError or zlib.error if the archive goes on, or breaks off, where ``tarfile`` has stopped.

    ``tarfile`` takes a header that it cannot read for the end. The real end is two blocks of zeros, and nothing
    but zeros after them. To read all of it also makes gzip compare its checksum.
    """
    stream = tar.fileobj
    assert stream is not None
    stream.seek(tar.offset)
    zeros = 0
    while chunk := stream.read(_CHUNK_BYTES):
        if chunk.count(0) != len(chunk):
            raise tarfile.ReadError(f"after {tar.offset} bytes there is no header of a file and no end of the archive")
        zeros += len(chunk)
    if zeros < 2 * _BLOCK:
        raise tarfile.ReadError(f"it breaks off after {tar.offset} bytes, without the end of an archive")


def _fix_prefixes(folder: Path, archive: Path) -> None:
    """Conda's own step after unpacking. Raises ConfigError if it fails: a half of the paths would be right."""
    script = folder / "bin" / "conda-unpack"
    python = folder / "bin" / "python"
    if not (script.is_file() and python.is_file()):
        return
    try:
        done = subprocess.run(
            [python, script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_UNPACK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        reason = f"it has not ended after {_UNPACK_SECONDS} seconds"
    except OSError as error:
        reason = str(error)
    else:
        if not done.returncode:
            return
        lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
        reason = f"exit code {done.returncode}: {lines[-1].strip() if lines else 'it said nothing'}"
    raise ConfigError(
        f"EXECUTION_ENV_PATH: the environment in {archive} cannot be used, for its bin/conda-unpack fails ({reason}); "
        "pack the environment again with conda-pack"
    )
