"""How long a client may take: the server's sweep closes what has stalled, and nothing else."""

from __future__ import annotations

import errno

import pytest
from http_line import Line, chunked, get, post

from bident.doors.http.limits import HttpLimits

LIMITS = HttpLimits(read_seconds=30, write_seconds=60, idle_seconds=75, linger_seconds=2)


class Watched(Line):
    """A client whose server sweeps once a second."""

    def __init__(self, limits: HttpLimits = LIMITS) -> None:
        super().__init__(limits=limits)
        self.lost = False

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.server.now += 1
            if self.transport.closed and not self.transport.stuck and not self.lost:
                self.lost = True
                self.connection.connection_lost(None)
            if not self.lost:
                self.connection.check_progress(self.server.now)


def test_an_idle_connection_is_closed_in_the_end() -> None:
    line = Watched()
    line.send(get())
    line.wait(75)
    assert not line.is_closed
    line.wait(1)
    assert line.is_closed
    assert not line.transport.aborted
    assert line.statuses() == [200], "idleness is no error: nothing is said"


def test_a_connection_that_never_asks_is_closed_too() -> None:
    line = Watched()
    line.wait(76)
    assert line.is_closed


@pytest.mark.parametrize("half", [get()[:-2], post("/echo", b"12345")[:-1], chunked("/echo", b"123")[:-1], b"G"])
def test_half_a_request_is_answered_408(half: bytes) -> None:
    line = Watched()
    line.send(half)
    line.wait(30)
    assert line.statuses() == []
    line.wait(1)
    assert line.statuses() == [408]
    assert line.is_closed


def test_a_head_has_to_be_complete_in_time_however_steadily_it_drips() -> None:
    line = Watched()
    for byte in get("/now/1", "X: " + "x" * 100):
        if line.is_closed:
            break
        line.send(bytes([byte]))
        line.wait(1)
    assert line.statuses() == [408]
    assert line.server.now == 31


def test_a_drip_that_begins_in_the_same_packet_as_another_request_has_the_same_time() -> None:
    line = Watched()
    line.wait(70)
    line.send(get() + b"GET /now/2 HT")
    for byte in b"TP/1.1\r\nX: " + b"x" * 100:
        if line.is_closed:
            break
        line.wait(1)
        line.send(bytes([byte]))
    assert line.statuses() == [200, 408]
    assert 100 <= line.server.now <= 102


def test_a_body_may_take_long_as_long_as_it_moves() -> None:
    line = Watched()
    body = b"x" * 10
    head = post("/echo", body)[: -len(body)]
    line.send(head)
    for byte in body:
        line.wait(29)
        line.send(bytes([byte]))
    assert line.statuses() == [200]


def test_waiting_for_us_is_no_stalling() -> None:
    line = Watched()
    line.send(get("/later"))
    line.wait(1000)
    line.server.seen[0].respond_json(b"{}")
    line.wait(75)
    assert not line.transport.closed, "its idle time begins with the answer"
    line.wait(1)
    assert line.is_closed


def test_a_client_that_reads_nothing_is_cut() -> None:
    line = Watched()
    line.transport.stuck = 1000
    line.send(get())
    line.connection.pause_writing()
    line.wait(61)
    assert not line.is_closed
    line.wait(1)
    assert line.transport.aborted


def test_a_client_that_reads_nothing_is_cut_below_the_high_water_mark_too() -> None:
    line = Watched()
    line.transport.stuck = 10
    line.send(get())
    line.wait(62)
    assert line.transport.aborted


def test_a_client_that_reads_slowly_is_not() -> None:
    line = Watched()
    line.transport.stuck = 1000
    line.send(get())
    line.connection.pause_writing()
    while line.transport.stuck:
        line.wait(59)
        line.transport.stuck -= 100
    line.connection.resume_writing()
    line.wait(1)
    assert not line.is_closed


def test_the_last_answer_to_a_slow_reader_is_not_cut_short() -> None:
    line = Watched()
    line.transport.stuck = 1000
    line.send(b"nonsense\r\n\r\n")
    for _ in range(10):
        line.wait(30)
        line.transport.stuck -= 100
        assert not line.transport.aborted
    line.wait(1)
    assert not line.transport.aborted, "what has left our buffer may still be on its way"
    line.wait(3)
    assert line.transport.aborted


def test_an_idle_connection_whose_client_read_nothing_cannot_leak() -> None:
    line = Watched()
    line.send(get("/now/1", "Connection: close"))
    line.transport.stuck = 10
    line.wait(62)
    assert line.transport.aborted


@pytest.mark.parametrize("after", [b"", get() * 3, b"more nonsense"])
def test_a_refused_client_that_does_not_close_is_cut_after_a_moment(after: bytes) -> None:
    line = Watched()
    line.send(b"nonsense\r\n\r\n" + after)
    line.wait(2)
    assert not line.transport.closed
    line.wait(1)
    assert line.transport.aborted


def test_zero_seconds_are_no_limit() -> None:
    limits = HttpLimits(read_seconds=0, idle_seconds=0)
    idle, reading = Watched(limits), Watched(limits)
    reading.send(get()[:-2])
    for line in (idle, reading):
        line.wait(5000)
        assert not line.is_closed


class TestClientsThatMayHaveGone:
    """One that has closed its socket looks like one that has only finished sending, until something is sent to it."""

    def test_an_answer_in_time_is_all_they_get(self) -> None:
        line = Watched()
        line.send(get("/later"))
        assert line.shut_down()
        line.server.seen[0].respond_json(b"{}")
        assert line.server.wait() == 1
        assert line.statuses() == [200]

    def test_those_who_wait_longer_are_told_to_go_on(self) -> None:
        line = Watched()
        line.send(get("/later"))
        assert line.shut_down()
        line.server.wait()
        assert line.statuses() == [100]
        line.server.wait()
        line.wait(10)
        line.server.seen[0].respond_json(b"{}")
        assert line.statuses() == [100, 200]
        assert line.is_closed

    def test_not_if_they_speak_1_0(self) -> None:
        line = Watched()
        line.send(get("/later", version="1.0"))
        assert line.shut_down()
        line.server.wait()
        assert line.statuses() == []

    @pytest.mark.parametrize("late", [False, True])
    def test_those_whose_system_says_they_have_gone_are_given_up(self, late: bool) -> None:
        line = Watched()
        line.send(get("/later"))
        assert line.shut_down()
        line.server.wait()
        if late:
            line.server.wait()
            line.wait(3)
            assert not line.transport.aborted
        line.transport.error = errno.EPIPE
        if late:
            line.wait(1)
        else:
            line.server.wait()
        assert line.transport.aborted

    def test_nothing_is_sent_between_an_answer_and_the_end(self) -> None:
        line = Watched()
        line.send(get("/later") + get("/later"))
        assert line.shut_down()
        line.server.seen[0].respond_json(b"{}")
        line.server.wait()
        assert line.statuses() == [200, 100]
        line.server.seen[1].respond_json(b"{}")
        line.server.wait()
        assert line.statuses() == [200, 100, 200]
