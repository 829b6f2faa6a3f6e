"""Names of files that come from a config or a request, kept inside the model's folder."""

from __future__ import annotations

import posixpath
import re

_DRIVE = re.compile(r"^[A-Za-z]:")


def escapes(name: str, below: str = "") -> bool:
    """Whether ``name``, relative to the subfolder ``below`` of a folder, would leave that folder.

    Decided from the text alone, for every operating system at once: absolute names, drive letters,
    backslashes and NUL count as leaving. A symbolic link inside the folder is its owner's business.
    """
    if name.startswith("/") or "\\" in name or "\0" in name or _DRIVE.match(name):
        return True
    return posixpath.normpath(posixpath.join(below, name)).split("/", 1)[0] == ".."
