"""The settings of who may use the server, and what they say about where it listens."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
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
