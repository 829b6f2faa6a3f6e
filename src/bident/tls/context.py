"""A server's context from its PEM files, with every mistake in them said in plain words."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path

from bident.errors import SettingsError

_NOT_YET_VALID = 9
_EXPIRED = 10
"""X.509 verification results (``X509_V_ERR_CERT_NOT_YET_VALID`` and ``..._HAS_EXPIRED`` of OpenSSL)."""
_MOST_STEPS = 8
"""A handshake takes two or three steps of each side."""


def server_context(
    cert: str, key: str, root: str = "", *, mutual: bool = False, protocols: Sequence[str] = ()
) -> ssl.SSLContext:
    """What a door needs to speak TLS 1.2 and later with the certificate chain in ``cert`` and its ``key``.

    ``mutual``: clients must show a certificate that one in ``root`` has signed. ``protocols`` are offered
    by ALPN, the favourite first. All files are PEM. Raises SettingsError that names the file and the cure.
    """
    _check_readable(cert, "certificate")
    _check_readable(key, "key")
    _check_own_certificate(cert, key)
    context = _context(cert, key)
    # Renegotiation lets a client make the server work again and again for one connection.
    context.options |= ssl.OP_NO_RENEGOTIATION
    if protocols:
        context.set_alpn_protocols(list(protocols))
    if mutual:
        _check_readable(root, "root certificate")
        try:
            context.load_verify_locations(root)
        except ssl.SSLError as error:
            raise SettingsError(
                f"the root certificate {root} is no PEM certificate ({_reason(error)}); it is the certificate of the "
                "authority that signs those of your clients, and begins with -----BEGIN CERTIFICATE-----"
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def reload(context: ssl.SSLContext, cert: str, key: str) -> None:
    """Have ``context`` use ``cert`` and ``key`` as they are now, for connections that come from now on.

    Raises SettingsError, and changes nothing, where they cannot be used.
    """
    _check_readable(cert, "certificate")
    _check_readable(key, "key")
    _check_own_certificate(cert, key)
    context.load_cert_chain(cert, key)


def _check_readable(path: str, what: str) -> None:
    if not path:
        raise SettingsError(f"TLS needs a {what}, and none is named")
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise SettingsError(f"cannot read the {what} {path}: {error.strerror or error}") from None


def _context(cert: str, key: str) -> ssl.SSLContext:
    """A server's context. Raises SettingsError where the two files are not a pair in PEM."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    has_asked = False

    def no_passphrase() -> str:  # without this OpenSSL asks at the terminal, and the server stands still
        nonlocal has_asked
        has_asked = True
        return ""

    try:
        context.load_cert_chain(cert, key, no_passphrase)
    except ssl.SSLError as error:
        if has_asked:
            raise SettingsError(
                f"the key {key} is encrypted, and there is nobody to ask for its passphrase; decrypt it first: "
                f"openssl pkey -in {key} -out decrypted.pem"
            ) from None
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SettingsError(
                f"the key {key} does not belong to the certificate {cert}; name the key that the certificate was "
                "made for (of a chain, the server's own certificate comes first)"
            ) from None
        raise SettingsError(_not_pem(cert, key, error)) from None
    return context


def _not_pem(cert: str, key: str, error: ssl.SSLError) -> str:
    for path, what, mark in ((cert, "certificate", b"CERTIFICATE-----"), (key, "key", b"PRIVATE KEY-----")):
        if mark not in Path(path).read_bytes():
            return (
                f"the {what} {path} is not in PEM format: it has no line -----BEGIN {mark.decode()}; "
                f"convert it, as in openssl {'x509' if what == 'certificate' else 'pkey'} -inform DER -in {path}"
            )
    return f"the certificate {cert} and the key {key} cannot be used: {_reason(error)}"


def _check_own_certificate(cert: str, key: str) -> None:
    """Shake hands with ourselves, the certificate being its own authority: whether a client's clock accepts it."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    server = _context(cert, key)
    client.load_verify_locations(cert)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_side=False)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for _ in range(_MOST_STEPS):
            if _shake(asking) & _shake(answering):
                return
    except ssl.SSLCertVerificationError as error:
        if error.verify_code == _EXPIRED:
            raise SettingsError(f"the certificate {cert} has expired: no client would accept it; renew it") from None
        if error.verify_code == _NOT_YET_VALID:
            raise SettingsError(
                f"the certificate {cert} is not valid yet: set this machine's clock right, or use another certificate"
            ) from None
    except ssl.SSLError:
        return  # made for something unusual; whether clients accept it is for them to say


def _shake(side: ssl.SSLObject) -> bool:
    """Go on with the handshake as far as possible; whether it is complete."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
