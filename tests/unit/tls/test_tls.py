"""A server's TLS context: what it speaks, and what is said of files that cannot be used."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import pytest

from bident.errors import SettingsError
from bident.tls import context as tls
from certificates import AUTHORITY, DER, certificate, key

PAIR = (certificate("server"), key("server"))


def shake(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """The client's side of a connection in memory, after the handshake and one byte of the server's."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        for side in (asking, answering):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    answering.write(b"x")  # raises what the handshake has ended with
    assert asking.read(1) == b"x"
    return asking


def client_context() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=AUTHORITY)


def test_a_client_that_believes_the_authority_is_served_with_the_favourite_protocol() -> None:
    client = client_context()
    client.set_alpn_protocols(["http/1.1", "h2"])
    connection = shake(tls.server_context(*PAIR, protocols=["h2", "http/1.1"]), client)
    assert connection.selected_alpn_protocol() == "h2"
    assert connection.version() == "TLSv1.3"


def test_what_is_older_than_tls_1_2_is_not_spoken() -> None:
    assert tls.server_context(*PAIR).minimum_version is ssl.TLSVersion.TLSv1_2
    old = client_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert shake(tls.server_context(*PAIR), old).version() == "TLSv1.2"


def test_a_client_without_a_certificate_is_turned_away_where_one_is_wanted() -> None:
    server = tls.server_context(*PAIR, AUTHORITY, mutual=True)
    with pytest.raises(ssl.SSLError):
        shake(server, client_context())
    known = client_context()
    known.load_cert_chain(certificate("client"), key("client"))
    shake(server, known)


@pytest.mark.parametrize(
    ("cert", "key_file", "says"),
    [
        ("/nowhere.pem", key("server"), "cannot read the certificate /nowhere.pem: No such file"),
        (certificate("server"), "/nowhere.key", "cannot read the key /nowhere.key"),
        ("", key("server"), "TLS needs a certificate"),
        (certificate("server"), key("client"), "does not belong to the certificate"),
        (certificate("expired"), key("expired"), "has expired"),
        (certificate("future"), key("future"), "is not valid yet: set this machine's clock right"),
        (certificate("server"), key("encrypted"), "is encrypted, and there is nobody to ask"),
        (DER, key("server"), "is not in PEM format: it has no line -----BEGIN CERTIFICATE-----"),
        (certificate("server"), DER, "is not in PEM format: it has no line -----BEGIN PRIVATE KEY-----"),
        (key("server"), certificate("server"), "is not in PEM format"),
    ],
)
def test_what_cannot_be_used_is_said_with_the_cure(cert: str, key_file: str, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        tls.server_context(cert, key_file)
    assert says in caught.value.message
    assert "_ssl.c" not in caught.value.message


def test_damaged_files_are_said_too(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(SettingsError, match="cannot be used"):
        tls.server_context(str(damaged), key("server"))
    with pytest.raises(SettingsError, match="is no PEM certificate"):
        tls.server_context(*PAIR, key("server"), mutual=True)


def test_a_renewed_certificate_is_used_from_then_on_and_a_broken_one_is_not(tmp_path: Path) -> None:
    cert, key_file = tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(PAIR[0], cert)
    shutil.copy(PAIR[1], key_file)
    context = tls.server_context(str(cert), str(key_file))

    def shown() -> str:
        found = shake(context, client_context()).getpeercert()
        assert found is not None
        return dict(pair[0] for pair in found["subject"])["commonName"]

    assert shown() == "server"
    shutil.copy(certificate("renewed"), cert)
    with pytest.raises(SettingsError):
        tls.reload(context, str(cert), str(key_file))
    assert shown() == "server"
    shutil.copy(key("renewed"), key_file)
    tls.reload(context, str(cert), str(key_file))
    assert shown() == "renewed"
