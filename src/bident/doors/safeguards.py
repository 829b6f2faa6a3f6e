"""What protects the doors, made from the settings once for all of them: certificates and API keys."""

from __future__ import annotations

import ssl

from bident.doors.api_keys import ApiKeys
from bident.settings import TensorSettings
from bident.settings.security import is_loopback
from bident.tls.certificate import Certificate

_HTTP_PROTOCOLS = ("http/1.1",)
_GRPC_PROTOCOLS = ("h2",)


class Safeguards:
    """``http`` and ``grpc`` are contexts for the doors that speak TLS; ``keys`` and ``metrics_keys`` what requests
    must carry. None where there is nothing of the kind. The metrics door has the HTTP door's context, and wants
    keys where others than this machine reach it.
    """

    def __init__(self, settings: TensorSettings) -> None:
        """Raises SettingsError where a file cannot be used."""
        self._certificates: list[Certificate] = []
        self.http: ssl.SSLContext | None = None
        self.grpc: ssl.SSLContext | None = None
        if settings.http_use_ssl or settings.http_use_ssl_mutual:
            files = settings.http_server_cert, settings.http_server_key, settings.http_root_cert
            self.http = self._context("--http-", *files, settings.http_use_ssl_mutual, _HTTP_PROTOCOLS)
        if settings.allow_grpc and (settings.grpc_use_ssl or settings.grpc_use_ssl_mutual):
            files = settings.grpc_server_cert, settings.grpc_server_key, settings.grpc_root_cert
            self.grpc = self._context("--grpc-", *files, settings.grpc_use_ssl_mutual, _GRPC_PROTOCOLS)
        self.keys = ApiKeys(settings.api_key_file) if settings.api_key_file else None
        self.metrics_keys = None if is_loopback(settings.metrics_address) else self.keys

    @property
    def has_certificates(self) -> bool:
        """Whether there is anything to renew."""
        return bool(self._certificates)

    def renew(self) -> None:
        """Use certificates that have been renewed on disk."""
        for certificate in self._certificates:
            certificate.renew()

    def _context(
        self, prefix: str, cert: str, key: str, root: str, mutual: bool, protocols: tuple[str, ...]
    ) -> ssl.SSLContext:
        made = Certificate(prefix, cert, key, root, mutual=mutual, protocols=protocols)
        self._certificates.append(made)
        return made.context
