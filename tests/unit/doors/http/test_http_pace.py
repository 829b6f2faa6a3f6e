"""A client that sends much gets its turn like everybody else, and is not owed more than it should be."""

from __future__ import annotations

from functools import partial

import pytest
from http_line import Line, LineServer, get, post

from bident.doors.http import exchange as exchange_module
from bident.doors.http import protocol
from bident.doors.http import stream as stream_module


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn ends because this machine is slow."""
    monkeypatch.setattr(protocol, "_TURN_NS", 10**12)


def receive(line: Line, data: bytes) -> None:
    """Let ``data`` arrive in one read, whether or not receiving is paused, without a turn of the loop."""
    line.connection.data_received(data)


def turn_until_quiet(line: Line) -> int:
    turns = 0
    while line.server.turn():
        turns += 1
    return turns


def test_64_requests_may_be_unanswered_then_receiving_pauses() -> None:
    line = Line()
    receive(line, get("/later") * 5000)
    assert len(line.server.seen) == 64
    assert not line.transport.receiving
    line.server.seen[0].respond_json(b"0")
    assert turn_until_quiet(line) == 1
    assert len(line.server.seen) == 65
    for number in range(1, 5000):
        line.server.seen[number].respond_json(b"%d" % number)
        turn_until_quiet(line)
    assert [answer.body for answer in line.answers()] == [b"%d" % number for number in range(5000)]
    assert line.transport.receiving


def test_requests_that_arrive_one_by_one_are_counted_too() -> None:
    line = Line()
    for _ in range(64):
        assert line.transport.receiving
        receive(line, post("/later"))
    assert not line.transport.receiving
    line.server.seen[0].respond_json(b"{}")
    assert line.transport.receiving


def test_two_large_requests_may_be_unanswered_then_receiving_pauses() -> None:
    line = Line()
    large = post("/later", b"x" * 600_000)
    receive(line, large)
    assert line.transport.receiving, "or nobody would notice that the client goes"
    receive(line, large)
    assert not line.transport.receiving
    line.server.seen[0].respond_json(b"{}")
    assert line.transport.receiving


def test_nothing_is_parsed_while_answers_do_not_go_out() -> None:
    line = Line()
    write = line.transport.write

    def write_and_fill_up(data: bytes) -> None:
        write(data)
        line.connection.pause_writing()

    line.transport.write = write_and_fill_up  # type: ignore[method-assign]
    receive(line, get("/now/1") * 1000)
    for answered in range(1, 10):
        assert len(line.answers()) == answered
        assert not line.transport.receiving
        line.connection.resume_writing()
        turn_until_quiet(line)


def test_a_turn_is_bounded_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_TURN_NS", 2_000_000)
    clock = iter(range(0, 10**12, 500_000))
    monkeypatch.setattr(protocol, "monotonic_ns", lambda: next(clock))  # half a millisecond a look
    line = Line()
    receive(line, get("/now/1") * 100)
    first = len(line.answers())
    assert 1 <= first <= 4
    assert not line.transport.receiving
    turns = turn_until_quiet(line)
    assert turns >= 100 / first - 1
    assert len(line.answers()) == 100
    assert line.transport.receiving


def test_a_pipelining_client_shares_the_loop_with_others() -> None:
    server = LineServer()
    greedy, modest = Line(server), Line(server)
    receive(greedy, get("/later") * 1000)
    receive(modest, get("/later"))
    assert len(server.seen) == 65
    server.seen[-1].respond_json(b"{}")
    assert modest.statuses() == [200]


def test_what_waits_is_dropped_with_the_connection() -> None:
    line = Line()
    receive(line, get("/later") * 100)
    line.transport.closed = True
    line.connection.connection_lost(None)
    turn_until_quiet(line)
    assert len(line.server.seen) == 64
    assert all(exchange.abandoned for exchange in line.server.seen)


def test_what_waits_is_not_served_after_the_last_answer() -> None:
    line = Line()
    receive(line, get("/later") * 64 + get("/later", "Connection: close") + get("/later") * 64)
    for number in range(65):
        line.server.seen[number].respond_json(b"{}")
        turn_until_quiet(line)
    assert len(line.server.seen) == 65
    assert len(line.answers()) == 65
    assert line.is_closed


def test_a_refused_client_is_drained_not_left_hanging() -> None:
    line = Line()
    receive(line, get("/later") * 64 + b"nonsense" * 1000)
    assert not line.transport.receiving
    for exchange in line.server.seen:
        exchange.respond_json(b"{}")
        turn_until_quiet(line)
    assert line.statuses() == [200] * 64 + [400]
    assert line.transport.eof_written
    assert line.transport.receiving, "else the client could not send the rest and would not come to read the answer"


@pytest.mark.parametrize("size", [1, 100, 1024, 1025, 5000, 100_000])
def test_reads_of_any_size_give_the_same(size: int) -> None:
    requests = b"".join(post("/echo", b"%d" % number * 100) + get(f"/now/{number}") for number in range(200))
    line = Line()
    line.send(requests, sizes=size)
    bodies = [answer.body for answer in line.answers()]
    assert bodies == [body for number in range(200) for body in (b"%d" % number * 100, b"[%d]" % number)]


class TestWaitingAnswers:
    """Answers that wait behind another, or for a client that takes nothing, are counted over the whole connection."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(exchange_module, "MOST_AT_ONCE", 10_000)
        monkeypatch.setattr(exchange_module, "_SMALL", 1000)

    def test_whole_answers_behind_an_open_stream(self, caplog: pytest.LogCaptureFixture) -> None:
        line = Line()
        receive(line, get("/later") * 60)
        line.server.seen[0].begin_stream(200, b"text/event-stream").write(b"one")
        gone: list[int] = []
        for number, exchange in enumerate(line.server.seen):
            exchange.on_abandon = partial(gone.append, number)
        for number in range(1, 50):
            line.server.seen[number].on_abandon = None
            line.server.seen[number].respond(200, (b"x" * 1500,))
        assert line.transport.aborted
        assert line.connection.held < 12_000
        assert sum(exchange.data is not None for exchange in line.server.seen) == 7
        line.connection.connection_lost(None)
        assert sorted(gone) == [0, *range(50, 60)]
        assert line.connection.held == 0
        assert [record.getMessage()[:55] for record in caplog.records] == [
            "a client that does not keep up with /later was cut off:"
        ]

    def test_streams_that_wait_count_together(self) -> None:
        line = Line()
        receive(line, get("/later") * 40)
        line.server.seen[0].begin_stream(200, b"text/event-stream")
        streams = [exchange.begin_stream(200, b"text/event-stream") for exchange in line.server.seen[1:]]
        for stream in streams:
            stream.write(b"x" * 100)
        assert not line.transport.aborted
        line.transport.stuck = stream_module.MOST_AT_ONCE - 5000
        streams[0].write(b"x")
        assert line.transport.aborted

    def test_whole_answers_that_the_client_does_not_take(self) -> None:
        line = Line()
        receive(line, get("/later") * 60)
        line.connection.pause_writing()
        for exchange in line.server.seen:
            exchange.respond(200, (b"x" * 1500,))
            line.transport.stuck = len(line.transport.written)
        assert line.transport.aborted
        assert len(line.transport.written) < 13_000

    def test_one_answer_may_be_larger(self) -> None:
        line = Line()
        receive(line, get("/later") * 3)
        line.server.seen[1].respond(200, (b"y" * 50_000,))
        assert line.connection.held > 50_000
        line.server.seen[0].respond(200, (b"x" * 50_000,))
        assert not line.transport.aborted
        assert line.connection.held == 0
        line.server.seen[2].respond(200, (b"z" * 50_000,))
        assert [answer.body[:1] for answer in line.answers()] == [b"x", b"y", b"z"]

    def test_small_ones_and_the_end_of_a_stream_may_follow_it(self) -> None:
        line = Line()
        receive(line, get("/later") * 3)
        line.connection.pause_writing()
        line.transport.stuck = 50_000
        stream = line.server.seen[0].begin_stream(200, b"text/event-stream")
        stream.write(b"x" * 50_000)
        line.server.seen[1].respond(200, (b"y" * 100,))
        stream.end()
        line.server.seen[2].respond(200, (b"z" * 100,))
        assert not line.transport.aborted
        assert line.transport.written.endswith(b"z" * 100)

    def test_a_client_that_reads_gets_any_amount(self) -> None:
        line = Line()
        for _ in range(20):
            receive(line, get("/later") * 2)
            first, second = line.server.seen[-2:]
            second.begin_stream(200, b"text/event-stream").write(b"x" * 5000)
            first.respond(200, (b"x" * 5000,))
            assert second.stream is not None
            second.stream.end()
        assert not line.transport.aborted
        assert line.connection.held == 0
