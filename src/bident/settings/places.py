"""Where this machine keeps what a user's programs may keep."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def user_cache_directory(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Bident's folder among the user's caches, as the platform wants it; it need not exist.

    Where no home folder is known (a container run under any user id) it is in the working directory.
    """
    try:
        if platform == "win32":
            local = environ.get("LOCALAPPDATA")
            return (Path(local) if local else Path.home() / "AppData" / "Local") / "bident" / "cache"
        if platform == "darwin":
            return Path.home() / "Library" / "Caches" / "bident"
        named = Path(environ.get("XDG_CACHE_HOME", ""))
        # The XDG specification: a path that is not absolute is to be ignored.
        return (named if named.is_absolute() else Path.home() / ".cache") / "bident"
    except RuntimeError:
        return Path(".bident", "cache").absolute()
