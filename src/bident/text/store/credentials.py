"""Logins for registries, from where ``docker login`` and its likes keep them."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path

import orjson


def registry_login(host: str) -> tuple[str, str] | None:
    """User and password for ``host`` from ``$DOCKER_CONFIG/config.json`` (or ``~/.docker``); None where there are none.

    Logins that the file leaves to a helper program are not looked up.
    """
    folder = Path(os.environ.get("DOCKER_CONFIG") or "~/.docker").expanduser()
    try:
        kept = orjson.loads((folder / "config.json").read_bytes())["auths"][host]["auth"]
        user, colon, password = base64.b64decode(kept, validate=True).decode("utf-8").partition(":")
    except (OSError, ValueError, KeyError, TypeError, binascii.Error):
        return None
    return (user, password) if colon else None
