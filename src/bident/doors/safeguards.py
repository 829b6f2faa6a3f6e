"""What protects the doors, made from the settings once for all of them: certificates and API keys."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from bident.doors import tls
from bident.doors.api_keys import ApiKeys
from bident.errors import SettingsError
from bident.settings import TensorSettings
from bident.settings.security import is_loopback

logger = logging.getLogger("bident.tls")

RENEWAL_SECONDS = 30.0
"""Between two looks at whether a certificate has been renewed."""

_HTTP_PROTOCOLS = ("http/1.1",)
_GRPC_PROTOCOLS = ("h2",)


@dataclass
class _Pair:
    """A certificate and its key on disk, and the context that uses them."""

    flag: str
    cert: str
    key: str
    context: ssl.SSLContext
    seen: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.seen = self._look()

    def renew(self) -> None:
        """Use the files as they are now, if they have changed. What is wrong with them is logged."""
        seen = self._look()
        if seen == self.seen:
            return
        self.seen = seen
        try:
            tls.reload(self.context, self.cert, self.key)
        except (OSError, SettingsError) as error:
            logger.error("%s=%s has changed, and the one before stays in use: %s", self.flag, self.cert, error)
        else:
            logger.info("%s=%s has changed: new connections get it", self.flag, self.cert)

    def _look(self) -> tuple[int, ...]:
        try:
            return tuple(Path(path).stat().st_mtime_ns for path in (self.cert, self.key))
        except OSError:
            return ()


class Safeguards:
    """``http`` and ``grpc`` are contexts for the doors that speak TLS; ``keys`` and ``metrics_keys`` what requests
    must carry. None where there is nothing of the kind. The metrics door has the HTTP door's context, and wants
    keys where others than this machine reach it.
    """

    def __init__(self, settings: TensorSettings) -> None:
        """Raises SettingsError where a file cannot be used."""
        self._pairs: list[_Pair] = []
        self.http = self._context(settings, "http", _HTTP_PROTOCOLS)
        self.grpc = self._context(settings, "grpc", _GRPC_PROTOCOLS)
        self.keys = ApiKeys(settings.api_key_file) if settings.api_key_file else None
        self.metrics_keys = None if is_loopback(settings.metrics_address) else self.keys

    @property
    def has_certificates(self) -> bool:
        """Whether there is anything to renew."""
        return bool(self._pairs)

    def renew(self) -> None:
        """Use certificates that have been renewed on disk."""
        for pair in self._pairs:
            pair.renew()

    def _context(self, settings: TensorSettings, door: str, protocols: tuple[str, ...]) -> ssl.SSLContext | None:
        mutual: bool = getattr(settings, f"{door}_use_ssl_mutual")
        if not (mutual or getattr(settings, f"{door}_use_ssl")) or not getattr(settings, f"allow_{door}"):
            return None
        cert, key, root = (getattr(settings, f"{door}_{what}") for what in ("server_cert", "server_key", "root_cert"))
        try:
            context = tls.server_context(cert, key, root, mutual=mutual, protocols=protocols)
        except SettingsError as error:
            raise SettingsError(f"--{door}-use-ssl{'-mutual' if mutual else ''}: {error.message}") from None
        self._pairs.append(_Pair(f"--{door}-server-cert", cert, key, context))
        return context
