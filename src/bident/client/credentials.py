"""What a client shows a server, and which servers it believes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bident.errors import invalid_arg

if TYPE_CHECKING:
    import ssl

API_KEY_VARIABLE = "BIDENT_API_KEY"
CA_VARIABLE = "BIDENT_CA"
HEADERS_VARIABLE = "BIDENT_HEADERS"

_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e\t]*)")
"""A header line, as RFC 9110 has it: a token, a colon, and what can be sent without an encoding."""


@dataclass(frozen=True)
class Credentials:
    """``api_key`` and ``more`` (name, value) go with every request. ``ca`` is the PEM file of the authority whose
    servers are believed, in place of the system's; ``pinned``: it is the server's own certificate, whatever host name
    that is made out for.
    """

    api_key: str = ""
    ca: str = ""
    pinned: bool = False
    more: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Credentials:
        """Those that the user's environment, or the command line in its place, names.

        Raises INVALID_ARG for a header that cannot be sent.
        """
        lines = environ.get(HEADERS_VARIABLE, "").splitlines()
        more = tuple(read_header(line) for line in lines if line.strip())
        return cls(environ.get(API_KEY_VARIABLE, ""), environ.get(CA_VARIABLE, ""), more=more)

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries."""
        key = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return {**key, **dict(self.more)}

    def context(self) -> ssl.SSLContext:
        """For connections over TLS. Raises INVALID_ARG where ``ca`` cannot be used."""
        # Only here: it takes a while to import, and most servers are asked without.
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except OSError as error:
            why = error.strerror or str(error)
            raise invalid_arg(f"--ca {self.ca}: it cannot be used as a PEM certificate: {why}") from None
        if self.pinned:
            context.check_hostname = False
            context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        return context


def read_header(line: str) -> tuple[str, str]:
    """The name and value in ``NAME: VALUE``. Raises INVALID_ARG where that is no header."""
    found = _HEADER.fullmatch(line.strip())
    if found is None:
        raise invalid_arg(f"'{line}' is no header that can be sent: it is written NAME: VALUE, in ASCII")
    return found[1], found[2]
