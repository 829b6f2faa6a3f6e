"""What the text server's settings say about each other."""

from __future__ import annotations

from dataclasses import replace

from bident.settings.security import Exposure, check_exposure, check_tls
from bident.settings.text import DEFAULT_PORT, TextSettings


def settle_text(settings: TextSettings) -> TextSettings:
    """``settings`` with all that follows from them. Raises SettingsError where strangers could use the server, and
    where settings contradict each other.
    """
    files = {
        "server-cert": settings.server_cert,
        "server-key": settings.server_key,
        "root-cert": settings.root_cert,
    }
    check_tls("--", used=settings.use_ssl, mutual=settings.use_ssl_mutual, files=files)
    door = Exposure("--host", settings.host.host, settings.use_ssl_mutual)
    check_exposure([door], keys=bool(settings.api_key_file), insecure=settings.insecure)
    port = settings.port if settings.port is not None else settings.host.port
    return replace(settings, port=DEFAULT_PORT if port is None else port)
