"""API keys: a file of them, of which a request must carry one; changed without a restart."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from bident.errors import SettingsError

logger = logging.getLogger("bident.keys")

_LOOK_SECONDS = 1.0
"""Between two looks at the file: as long as a key that was taken out may still work."""
_LARGEST_FILE = 1 << 20
_SHORT_KEY = 16
_BEARER = b"bearer "

_Look = tuple[int, int, int]


class ApiKeys:
    """The keys of one file: one on each line; empty lines and those that begin with ``#`` do not count.

    The file is looked at again while requests come, at most once in a second. What is wrong with it then
    is logged, and the keys before stay valid: a mistake in the file shuts nobody out and lets nobody in.
    """

    def __init__(self, path: str) -> None:
        """Raises SettingsError where there is no usable key to begin with."""
        self._path = path
        self._secret = secrets.token_bytes(32)
        self._look = _look(path)
        self._digests = self._read()
        self._next_look = time.monotonic() + _LOOK_SECONDS
        self._warn_of_strangers()

    def allows(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether ``headers`` (lower-case names) carry a key: ``authorization: Bearer KEY``, or ``x-api-key: KEY``."""
        presented = headers.get(b"x-api-key")
        if presented is None:
            authorization = headers.get(b"authorization")
            if authorization is None or authorization[: len(_BEARER)].lower() != _BEARER:
                return False
            presented = authorization[len(_BEARER) :]
        if time.monotonic() >= self._next_look:
            self._look_again()
        digest = self._digest(presented.strip())
        allowed = False
        for known in self._digests:  # all of them: how long it takes tells nothing of the keys
            allowed |= hmac.compare_digest(known, digest)
        return allowed

    def _digest(self, key: bytes) -> bytes:
        """Of one length whatever the key's, and of no use to whoever reads this process's memory."""
        return hashlib.blake2b(key, key=self._secret, digest_size=32).digest()

    def _look_again(self) -> None:
        self._next_look = time.monotonic() + _LOOK_SECONDS
        look = _look(self._path)
        if look == self._look:
            return
        self._look = look
        try:
            self._digests = self._read()
        except SettingsError as error:
            logger.error("%s; the keys before stay valid", error.message)
            return
        logger.info("--api-key-file=%s has changed: %d keys are valid now", self._path, len(self._digests))
        self._warn_of_strangers()

    def _read(self) -> tuple[bytes, ...]:
        where = f"--api-key-file={self._path}"
        try:
            with Path(self._path).open("rb") as file:
                content = file.read(_LARGEST_FILE + 1)
        except OSError as error:
            raise SettingsError(f"{where}: cannot read it: {error.strerror or error}") from None
        if len(content) > _LARGEST_FILE:
            raise SettingsError(f"{where}: it is larger than {_LARGEST_FILE} bytes; one key a line is all it holds")
        keys = []
        for number, line in enumerate(content.splitlines(), 1):
            key = line.strip()
            if not key or key.startswith(b"#"):
                continue
            if not all(0x21 <= byte <= 0x7E for byte in key):
                raise SettingsError(
                    f"{where}: line {number} is no key: one is a single word of printable ASCII characters"
                )
            keys.append(key)
        if not keys:
            raise SettingsError(
                f"{where}: it holds no key; write one on each line, such as one made by "
                "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        if any(len(key) < _SHORT_KEY for key in keys):
            logger.warning("%s: a key of fewer than %d characters can be guessed", where, _SHORT_KEY)
        return tuple(dict.fromkeys(map(self._digest, keys)))

    def _warn_of_strangers(self) -> None:
        if os.name != "posix":
            return
        try:
            mode = Path(self._path).stat().st_mode
        except OSError:
            return
        if mode & (stat.S_IROTH | stat.S_IWOTH):
            logger.warning(
                "--api-key-file=%s: every user of this machine can %s it; chmod o-rw %s",
                self._path,
                "write" if mode & stat.S_IWOTH else "read",
                self._path,
            )


def _look(path: str) -> _Look | None:
    """What changes when somebody writes or replaces the file; None while there is none."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
