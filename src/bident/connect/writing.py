"""Files of a neighbour, written into a folder: each at once, and none where one would replace somebody's work."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bident.connect.neighbour import File
from bident.errors import Code, ServeError
from bident.local.files import replacing


def write_files(files: Iterable[File], folder: Path, *, force: bool = False) -> list[tuple[Path, bool]]:
    """Write ``files`` below ``folder``; the path of each, and whether it was written or is there already as it is.

    Raises ALREADY_EXISTS, before anything is written, where a file with other contents is there and ``force`` is not
    given; INVALID_ARG for a path out of ``folder``; UNAVAILABLE where the file system refuses.
    """
    places = [(_place(folder, file), file) for file in files]
    try:
        same = {path for path, file in places if path.is_file() and path.read_bytes() == file.text.encode()}
        others = [str(path) for path, _ in places if path.exists() and path not in same]
        if others and not force:
            raise ServeError(
                Code.ALREADY_EXISTS,
                f"{', '.join(others)}: there already with other contents; --force replaces what is there",
            )
        for path, file in places:
            if path not in same:
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path, file.text.encode()) as draft:
                    draft.chmod(0o644)
    except OSError as error:
        where = error.filename or folder
        raise ServeError(Code.UNAVAILABLE, f"cannot write {where}: {error.strerror or error}") from None
    return [(path, path not in same) for path, _ in places]


def _place(folder: Path, file: File) -> Path:
    path = folder / file.path
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ServeError(Code.INVALID_ARG, f"'{file.path}' would be written outside of {folder}")
    return path
