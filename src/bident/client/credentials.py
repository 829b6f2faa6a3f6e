"""What a client shows a server, and which servers it believes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bident.errors import invalid_arg

if TYPE_CHECKING:
    import ssl

API_KEY_VARIABLE = "BIDENT_API_KEY"
CA_VARIABLE = "BIDENT_CA"


@dataclass(frozen=True)
class Credentials:
    """``api_key`` goes with every request. ``ca`` is the PEM file of the authority whose servers are believed, in
    place of the system's; ``pinned``: it is the server's own certificate, whatever host name that is made out for.
    """

    api_key: str = ""
    ca: str = ""
    pinned: bool = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Credentials:
        """Those that the user's environment, or the command line in its place, names."""
        return cls(environ.get(API_KEY_VARIABLE, ""), environ.get(CA_VARIABLE, ""))

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

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
