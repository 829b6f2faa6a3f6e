"""A door's certificate: its files, the context that uses them, and the look at whether they have been renewed."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Sequence
from pathlib import Path

from bident.errors import SettingsError
from bident.tls.context import reload, server_context

logger = logging.getLogger("bident.tls")

RENEWAL_SECONDS = 30.0
"""Between two looks at whether a certificate has been renewed."""


class Certificate:
    """A certificate and its key on disk, and the ``context`` that uses them."""

    def __init__(self, prefix: str, cert: str, key: str, root: str, *, mutual: bool, protocols: Sequence[str]) -> None:
        """The flags of the settings begin with ``prefix``; the rest as :func:`server_context` has it.

        Raises SettingsError, which names the flag, where a file cannot be used.
        """
        self._flag = f"{prefix}server-cert={cert}"
        self._cert, self._key = cert, key
        try:
            self.context: ssl.SSLContext = server_context(cert, key, root, mutual=mutual, protocols=protocols)
        except SettingsError as error:
            raise SettingsError(f"{prefix}use-ssl{'-mutual' if mutual else ''}: {error.message}") from None
        self._seen = self._look()

    def renew(self) -> None:
        """Use the files as they are now, if they have changed. What is wrong with them is logged."""
        seen = self._look()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            reload(self.context, self._cert, self._key)
        except (OSError, SettingsError) as error:
            logger.error("%s has changed, and the one before stays in use: %s", self._flag, error)
        else:
            logger.info("%s has changed: new connections get it", self._flag)

    def _look(self) -> tuple[int, ...]:
        try:
            return tuple(Path(path).stat().st_mtime_ns for path in (self._cert, self._key))
        except OSError:
            return ()
