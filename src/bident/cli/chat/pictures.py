"""Pictures in what a user types: paths of files, which a model with eyes is shown."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from bident.errors import invalid_arg

_LARGEST = 32 << 20
_ENDINGS = r"\.(?:png|jpe?g|webp)"
# Within quotes, as terminals write a path that is dragged into them; or bare, with spaces escaped.
_PATHS = re.compile(
    rf"""(["'])((?:(?!\1).)+?{_ENDINGS})\1|((?:\\.|[^\s"'\\])+{_ENDINGS})(?=\s|$|[,;:!?])""", re.IGNORECASE
)


def extract(text: str) -> tuple[str, list[str]]:
    """``text`` without the paths of pictures in it, and those pictures in base64.

    A path without a file stays what it is: a word. Raises INVALID_ARG for a picture that cannot be read.
    """
    pictures: list[str] = []

    def take(found: re.Match[str]) -> str:
        named = found[2] or re.sub(r"\\(.)", r"\1", found[3])
        path = Path(named).expanduser()
        if not path.is_file():
            return found[0]
        pictures.append(_read(path))
        return ""

    return _PATHS.sub(take, text).strip(), pictures


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST:
            raise invalid_arg(f"{path} is larger than the {_LARGEST >> 20} MB that a picture may have")
        return base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise invalid_arg(f"{path} cannot be read: {error.strerror or error}") from None
