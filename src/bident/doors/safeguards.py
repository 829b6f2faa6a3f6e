"""What protects the doors, made from the settings once for all of them: certificates and API keys."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

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


class _Files(NamedTuple):
    """The PEM files of one door."""

    door: str
    cert: str
    key: str
    root: str


@dataclass
class _Pair:
    """A certificate and its key on disk, and the context that uses them."""

    files: _Files
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
        flag = f"--{self.files.door}-server-cert={self.files.cert}"
        try:
            tls.reload(self.context, self.files.cert, self.files.key)
        except (OSError, SettingsError) as error:
            logger.error("%s has changed, and the one before stays in use: %s", flag, error)
        else:
            logger.info("%s has changed: new connections get it", flag)

    def _look(self) -> tuple[int, ...]:
        try:
            return tuple(Path(path).stat().st_mtime_ns for path in (self.files.cert, self.files.key))
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
        self.http = self._context(
            _Files("http", settings.http_server_cert, settings.http_server_key, settings.http_root_cert),
            wanted=settings.http_use_ssl or settings.http_use_ssl_mutual,
            mutual=settings.http_use_ssl_mutual,
            protocols=_HTTP_PROTOCOLS,
        )
        self.grpc = self._context(
            _Files("grpc", settings.grpc_server_cert, settings.grpc_server_key, settings.grpc_root_cert),
            wanted=settings.allow_grpc and (settings.grpc_use_ssl or settings.grpc_use_ssl_mutual),
            mutual=settings.grpc_use_ssl_mutual,
            protocols=_GRPC_PROTOCOLS,
        )
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

    def _context(
        self, files: _Files, *, wanted: bool, mutual: bool, protocols: tuple[str, ...]
    ) -> ssl.SSLContext | None:
        if not wanted:
            return None
        try:
            context = tls.server_context(files.cert, files.key, files.root, mutual=mutual, protocols=protocols)
        except SettingsError as error:
            raise SettingsError(f"--{files.door}-use-ssl{'-mutual' if mutual else ''}: {error.message}") from None
        self._pairs.append(_Pair(files, context))
        return context
