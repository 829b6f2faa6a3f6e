"""What the text server's settings say about each other."""

from __future__ import annotations

from dataclasses import replace

from bident.settings.security import Exposure, check_exposure
from bident.settings.text import DEFAULT_PORT, TextSettings


def settle_text(settings: TextSettings) -> TextSettings:
    """``settings`` with all that follows from them. Raises SettingsError where strangers could use the server."""
    check_exposure(
        [Exposure("--host", settings.host.host)], keys=bool(settings.api_key_file), insecure=settings.insecure
    )
    port = settings.port if settings.port is not None else settings.host.port
    return replace(settings, port=DEFAULT_PORT if port is None else port)
