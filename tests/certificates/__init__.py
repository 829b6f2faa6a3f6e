"""Certificates and keys for the tests, made by ``make.sh``."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent

AUTHORITY = str(_HERE / "authority.pem")


def certificate(name: str) -> str:
    """The certificate called ``name``: server, renewed, client, expired or future, signed by the authority."""
    return str(_HERE / f"{name}.pem")


def key(name: str) -> str:
    """The key of that certificate; ``encrypted`` is the server's."""
    return str(_HERE / f"{name}.key")


DER = str(_HERE / "server.der")
