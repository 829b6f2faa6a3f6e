"""Answers leave in the order of the requests, each to its own request, for as long as they should."""

from __future__ import annotations

import pytest
from http_line import Line, chunked, get, post


def test_pipelined_answers_keep_their_order_however_they_come() -> None:
    line = Line()
    line.send(b"".join(post("/later", b"%d" % number) for number in range(5)))
    for number in (3, 1, 0, 4, 2):
        exchange = line.server.seen[number]
        exchange.respond_json(exchange.body)
    assert [answer.body for answer in line.answers()] == [b"0", b"1", b"2", b"3", b"4"]


def test_an_answer_waits_for_those_before_it() -> None:
    line = Line()
    line.send(get("/later") + get("/now/2"))
    assert line.answers() == []
    line.server.seen[0].respond_json(b"1")
    assert [answer.body for answer in line.answers()] == [b"1", b"[2]"]


def test_a_second_answer_to_the_same_request_reaches_nobody() -> None:
    line = Line()
    line.send(get("/later") + get("/later"))
    first, second = line.server.seen
    first.respond_json(b"1")
    first.respond_json(b"again")
    second.respond_json(b"2")
    assert [answer.body for answer in line.answers()] == [b"1", b"2"]


def test_an_answer_after_the_client_has_gone_reaches_nobody() -> None:
    line = Line()
    line.send(get("/later"))
    line.connection.connection_lost(None)
    line.server.seen[0].respond_json(b"1")
    assert line.transport.written == b""


def test_a_client_that_goes_cancels_everything_it_waits_for() -> None:
    line = Line()
    cancelled: list[int] = []
    line.send(get("/later") * 3)
    for number, exchange in enumerate(line.server.seen):
        exchange.on_abandon = lambda number=number: cancelled.append(number)  # type: ignore[misc]
    line.connection.connection_lost(ConnectionResetError())
    assert cancelled == [0, 1, 2]
    assert all(exchange.abandoned for exchange in line.server.seen)
    assert line.server.connection_count == 0


def test_many_requests_on_one_connection() -> None:
    line = Line()
    for number in range(1000):
        line.send(get(f"/now/{number}"))
    assert [answer.body for answer in line.answers()] == [b"[%d]" % number for number in range(1000)]
    assert not line.is_closed


def test_an_error_leaves_the_connection_usable() -> None:
    line = Line()
    line.send(get("/nowhere") + post("/now/1") + get("/now/2"))
    assert line.statuses() == [404, 405, 200]
    assert not line.is_closed


def test_connection_close() -> None:
    line = Line()
    line.send(get("/now/1", "Connection: close"))
    (answer,) = line.answers()
    assert answer.headers[b"connection"] == b"close"
    assert line.is_closed


def test_nothing_that_follows_connection_close_is_served() -> None:
    line = Line()
    line.send(get("/later", "Connection: close") + get("/later"))
    line.send(get("/later"))
    assert len(line.server.seen) == 1
    line.server.seen[0].respond_json(b"1")
    assert [answer.body for answer in line.answers()] == [b"1"]
    assert line.is_closed


@pytest.mark.parametrize(
    ("headers", "connection", "closed"),
    [
        ((), b"close", True),
        (("Connection: keep-alive",), b"keep-alive", False),
        (("Connection: close",), b"close", True),
    ],
)
def test_http_1_0(headers: tuple[str, ...], connection: bytes, closed: bool) -> None:
    line = Line()
    line.send(get("/now/1", *headers, version="1.0"))
    (answer,) = line.answers()
    assert answer.status == 200
    assert answer.headers[b"connection"] == connection
    assert line.is_closed is closed


def test_http_1_1_with_keep_alive_gets_no_connection_header() -> None:
    line = Line()
    line.send(get("/now/1", "Connection: Keep-Alive"))
    assert b"connection" not in line.answers()[0].headers


@pytest.mark.parametrize("version", ["0.9", "2.0"])
def test_other_versions(version: str) -> None:
    line = Line()
    line.send(get("/now/1", "Connection: keep-alive", version=version))
    (answer,) = line.answers()
    assert answer.status == 505
    assert version.encode() in answer.body
    assert line.is_closed


def test_head_has_the_length_and_not_the_body() -> None:
    line = Line()
    line.send(get("/now/123", method="HEAD") + get("/nowhere", method="HEAD") + get("/now/7"))
    first, second, third = line.answers(heads=(0, 1))
    assert (first.status, first.headers[b"content-length"]) == (200, b"5")
    assert (second.status, second.headers[b"content-length"]) == (404, b"21")
    assert third.body == b"[7]"


def test_405_says_what_is_allowed() -> None:
    line = Line()
    line.send(post("/now/1"))
    (answer,) = line.answers()
    assert answer.headers[b"allow"] == b"GET, HEAD"
    assert answer.body == b'{"error":"Method Not Allowed"}'


def test_a_half_closed_client_gets_its_answers() -> None:
    line = Line()
    line.send(get("/later") + get("/later"))
    assert line.shut_down()
    for exchange in line.server.seen:
        exchange.respond_json(b"{}")
    assert line.statuses() == [200, 200]
    assert line.is_closed


def test_a_half_closed_client_that_is_owed_nothing_is_closed() -> None:
    line = Line()
    line.send(get("/now/1"))
    assert not line.shut_down()


def test_a_half_closed_client_gets_the_answers_before_the_refusal_of_its_last_request() -> None:
    line = Line()
    line.send(get("/later") + b"nonsense\r\n\r\n")
    assert line.shut_down()
    assert not line.is_closed
    line.server.seen[0].respond_json(b"{}")
    assert line.statuses() == [200, 400]
    assert line.is_closed


@pytest.mark.parametrize("half", [get("/now/1")[:-2], post("/echo", b"12345")[:-1], chunked("/echo", b"123")[:-2]])
def test_half_a_request_is_refused_when_the_client_stops_sending(half: bytes) -> None:
    line = Line()
    line.send(half)
    line.shut_down()
    (answer,) = line.answers()
    assert answer.status == 400
    assert b"before its request was complete" in answer.body
    assert line.is_closed


def test_after_a_malformed_request_nothing_is_read() -> None:
    line = Line()
    line.send(get("/now/1") + b"\x16\x03\x01 TLS?" + get("/now/2"))
    line.send(get("/now/3"))
    assert line.statuses() == [200, 400]
    assert line.transport.eof_written, "closing at once would lose the answer of a client that is still sending"


def test_what_a_refused_client_still_sends_cannot_keep_the_connection_open() -> None:
    line = Line()
    line.send(b"nonsense\r\n\r\n")
    for second in range(1, 5):
        line.send(get("/now/1"))
        line.server.now = float(second)
        line.connection.check_progress(line.server.now)
    assert line.transport.aborted


class TestDrain:
    def test_what_is_asked_after_it_began_is_answered_and_the_last(self) -> None:
        line = Line()
        line.send(get("/now/1"))
        line.server.is_draining = True
        line.send(get("/now/2"))
        assert line.answers()[1].headers[b"connection"] == b"close"
        assert line.is_closed

    def test_a_known_head_is_no_way_around_it(self) -> None:
        line = Line()
        for _ in range(3):
            line.send(post())
        line.server.is_draining = True
        line.send(post())
        assert line.answers()[3].headers[b"connection"] == b"close"
        assert line.is_closed

    def test_what_was_asked_before_is_answered_in_full(self) -> None:
        line = Line()
        line.send(get("/later") + get("/later"))
        line.server.is_draining = True
        line.server.seen[0].respond_json(b"1")
        assert not line.is_closed
        line.server.seen[1].respond_json(b"2")
        assert line.statuses() == [200, 200]
        assert line.is_closed

    def test_a_request_on_its_way_is_still_answered(self) -> None:
        line = Line()
        line.send(get("/later") + get("/now/2")[:-2])
        line.server.is_draining = True
        line.server.seen[0].respond_json(b"1")
        line.send(b"\r\n")
        assert line.statuses() == [200, 200]
        assert line.is_closed

    def test_a_server_owes_answers_until_the_last_byte_is_sent(self) -> None:
        line = Line()
        assert not line.server.owes_answers
        line.send(get("/later"))
        assert line.server.owes_answers
        line.transport.stuck = 10
        line.server.seen[0].respond_json(b"1")
        assert line.server.owes_answers
        line.transport.stuck = 0
        assert not line.server.owes_answers
