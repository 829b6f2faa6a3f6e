"""The settings of who may use the server, and what they say about where it listens."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from bident.errors import SettingsError
from bident.settings.setting import setting
from bident.settings.values import BOOLEAN, TEXT


@dataclass(frozen=True)
class Security:
    """Who may use the server."""

    title: ClassVar[str] = "Security"

    api_key_file: str = setting(
        TEXT,
        "",
        "File of API keys, one a line, # for comments; every request but health must carry one of them. Read again "
        "when it changes.",
    )
    insecure: bool = setting(
        BOOLEAN,
        False,
        "Serve on other addresses than loopback without API keys or client certificates: whoever reaches the port may "
        "use and load models.",
        takes_value=False,
    )


def check_tls(prefix: str, *, used: bool, mutual: bool, files: Mapping[str, str]) -> None:
    """A door's TLS settings as a whole: nothing missing, nothing that would silently protect nobody.

    Its flags begin with ``prefix``; ``files`` are those of ``server-cert``, ``server-key`` and ``root-cert``.
    Raises SettingsError.
    """
    if used or mutual:
        flag = f"{prefix}use-ssl-mutual" if mutual else f"{prefix}use-ssl"
        needed = ("server-cert", "server-key", "root-cert") if mutual else ("server-cert", "server-key")
        missing = [prefix + what for what in needed if not files[what]]
        if missing:
            raise SettingsError(f"{flag} needs {' and '.join(missing)} too, each a PEM file")
    elif named := [f"{prefix}{what}={path}" for what, path in files.items() if path]:
        raise SettingsError(f"{' '.join(named)} without {prefix}use-ssl=true: the door would not be encrypted; add it")


@dataclass(frozen=True)
class Exposure:
    """A door that opens: its flag and address, and whether it asks clients for certificates."""

    flag: str
    address: str
    mutual: bool = False


def check_exposure(doors: Iterable[Exposure], *, keys: bool, insecure: bool) -> None:
    """Raise SettingsError where strangers could use a door that asks nobody who they are."""
    if keys or insecure:
        return
    exposed = [f"{door.flag}={door.address}" for door in doors if not door.mutual and not is_loopback(door.address)]
    if exposed:
        raise SettingsError(
            f"{', '.join(exposed)}: whoever reaches this machine over the network could use its models, and load their "
            "own where the server lets clients load. Name a file of API keys with --api-key-file, or say --insecure "
            "where the network keeps strangers out"
        )


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach ``address``. A name other than localhost may lead anywhere."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
