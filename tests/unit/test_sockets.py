"""Binding the doors' ports: all or none, and every conflict named."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from bident.errors import Code, ServeError
from bident.sockets import Listening, bind_all

HERE = "127.0.0.1"


@pytest.fixture
def taken() -> Iterator[list[int]]:
    """Two ports that somebody listens on."""
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(2):
            holder = stack.enter_context(socket.create_server((HERE, 0)))
            ports.append(holder.getsockname()[1])
        yield ports


def _close(bound: dict[str, socket.socket]) -> None:
    for sock in bound.values():
        sock.close()


def _is_free(port: int) -> bool:
    try:
        socket.create_server((HERE, port)).close()
    except OSError:
        return False
    return True


def test_port_0_takes_free_ports_and_they_accept_connections() -> None:
    bound = bind_all([Listening("HTTP", HERE, 0), Listening("Metrics", HERE, 0)])
    try:
        assert list(bound) == ["HTTP", "Metrics"]
        ports = {sock.getsockname()[1] for sock in bound.values()}
        assert len(ports) == 2
        assert 0 not in ports
        for sock in bound.values():
            assert not sock.getblocking()
            with socket.create_connection(sock.getsockname(), timeout=5):
                pass
    finally:
        _close(bound)


def test_nothing_wanted_binds_nothing() -> None:
    assert bind_all([]) == {}


def test_every_conflict_is_named_and_nothing_stays_bound(taken: list[int]) -> None:
    free = bind_all([Listening("probe", HERE, 0)])
    between = free["probe"].getsockname()[1]
    _close(free)
    wanted = [Listening("HTTP", HERE, taken[0]), Listening("gRPC", HERE, between), Listening("Metrics", HERE, taken[1])]

    with pytest.raises(ServeError) as caught:
        bind_all(wanted)

    assert caught.value.code is Code.UNAVAILABLE
    assert f"HTTP on {HERE}:{taken[0]} (already in use)" in caught.value.message
    assert f"Metrics on {HERE}:{taken[1]} (already in use)" in caught.value.message
    assert "gRPC" not in caught.value.message
    assert "--http-port" in caught.value.message
    assert _is_free(between)


def test_two_services_cannot_have_the_same_port() -> None:
    probe = bind_all([Listening("probe", HERE, 0)])
    port = probe["probe"].getsockname()[1]
    _close(probe)

    with pytest.raises(ServeError, match=f"Metrics on {HERE}:{port} \\(already in use\\)"):
        bind_all([Listening("HTTP", HERE, port), Listening("Metrics", HERE, port)])
    assert _is_free(port)


def test_a_second_server_on_the_same_port_is_refused() -> None:
    first = bind_all([Listening("HTTP", HERE, 0)])
    try:
        port = first["HTTP"].getsockname()[1]
        with pytest.raises(ServeError, match="already in use"):
            bind_all([Listening("HTTP", HERE, port)])
    finally:
        _close(first)


@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="this platform cannot share ports")
def test_shared_ports_are_shared_only_with_who_shares() -> None:
    first = bind_all([Listening("HTTP", HERE, 0, shared=True)])
    port = first["HTTP"].getsockname()[1]
    try:
        second = bind_all([Listening("HTTP", HERE, port, shared=True)])
        _close(second)
        with pytest.raises(ServeError, match="already in use"):
            bind_all([Listening("HTTP", HERE, port, shared=False)])
    finally:
        _close(first)


def test_a_port_can_be_had_again_right_after_a_connection_on_it() -> None:
    bound = bind_all([Listening("HTTP", HERE, 0)])
    address = bound["HTTP"].getsockname()
    bound["HTTP"].setblocking(True)
    with socket.create_connection(address, timeout=5) as client:
        accepted, _ = bound["HTTP"].accept()
        accepted.close()  # the server's side closes first and is left in TIME_WAIT
        assert client.recv(1) == b""
    _close(bound)

    _close(bind_all([Listening("HTTP", HERE, address[1])]))


@pytest.mark.parametrize("address", ["192.0.2.1", "no-such-host.invalid"])
def test_an_address_that_is_not_ours_is_explained(address: str) -> None:
    with pytest.raises(ServeError) as caught:
        bind_all([Listening("HTTP", address, 0)])

    assert caught.value.message.startswith(f"cannot listen: HTTP on {address}:0 (")
    if address == "192.0.2.1":
        assert "this machine has no such address" in caught.value.message


def test_ipv6_loopback() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    bound = bind_all([Listening("HTTP", "::1", 0)])
    try:
        assert bound["HTTP"].family == socket.AF_INET6
        with socket.create_connection(bound["HTTP"].getsockname()[:2], timeout=5):
            pass
    finally:
        _close(bound)


@pytest.mark.parametrize("port", [-1, 65536, 70000])
def test_a_port_out_of_range_never_becomes_another_port(port: int) -> None:
    with pytest.raises(ServeError, match=f"HTTP on {HERE}:{port} "):
        bind_all([Listening("HTTP", HERE, port)])
