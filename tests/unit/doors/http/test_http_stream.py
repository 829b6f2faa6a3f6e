"""Answers that come piece by piece: framing, order, and clients that go, stall or fall behind."""

from __future__ import annotations

import logging

import pytest
from generate_house import read_whole
from http_line import Line, LineServer, get, post

from bident.doors.http import stream as stream_module
from bident.doors.http.exchange import Exchange
from bident.doors.http.limits import HttpLimits
from bident.doors.http.stream import Stream

TEXT = b"text/plain"


def begun(line: Line, request: bytes | None = None) -> Stream:
    """The stream that answers ``request``."""
    line.send(request or post("/later"))
    return line.server.seen[-1].begin_stream(200, TEXT)


def test_pieces_are_chunks_and_leave_at_once() -> None:
    line = Line()
    stream = begun(line)
    assert (
        line.transport.written == b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    stream.write(b"one")
    (answer,) = read_whole(line.transport.written)
    assert (answer.chunks, answer.ended) == ([b"one"], False)
    stream.write(b"two" * 100)
    stream.end()
    (answer,) = read_whole(line.transport.written)
    assert (answer.status, answer.chunks, answer.ended) == (200, [b"one", b"two" * 100], True)


@pytest.mark.parametrize("size", [1, 15, 16, 65535, 65536, 65537, 1_000_000])
def test_pieces_of_any_size(size: int) -> None:
    line = Line()
    stream = begun(line)
    stream.write(b"x" * size)
    stream.end()
    assert read_whole(line.transport.written)[0].chunks == [b"x" * size]


def test_an_empty_piece_is_not_the_end() -> None:
    line = Line()
    stream = begun(line)
    stream.write(b"")
    stream.write(b"one")
    stream.end()
    assert read_whole(line.transport.written)[0].chunks == [b"one"]


def test_a_stream_without_pieces_is_an_empty_answer() -> None:
    line = Line()
    begun(line).end()
    line.send(get("/now/2"))
    first, second = read_whole(line.transport.written)
    assert (first.body, first.ended) == (b"", True)
    assert second.body == b"[2]"


def test_the_connection_is_kept_after_a_stream() -> None:
    line = Line()
    for number in range(3):
        stream = begun(line)
        stream.write(b"%d" % number)
        stream.end()
    assert [answer.body for answer in read_whole(line.transport.written)] == [b"0", b"1", b"2"]
    assert not line.is_closed


def test_nothing_follows_the_end() -> None:
    line = Line()
    stream = begun(line)
    stream.end()
    sent = line.transport.written
    stream.write(b"late")
    stream.end()
    stream.break_off()
    assert line.transport.written == sent
    assert not line.is_closed


def test_connection_close_is_said_and_done() -> None:
    line = Line()
    stream = begun(line, post("/later", b"", "Connection: close"))
    assert not line.is_closed
    stream.end()
    assert read_whole(line.transport.written)[0].headers[b"connection"] == b"close"
    assert line.is_closed


def test_http_1_0_has_no_chunks_and_the_connection_ends_with_the_answer() -> None:
    line = Line()
    stream = begun(line, post("/later", b"{}", "Connection: keep-alive", version="1.0"))
    stream.write(b"one")
    stream.write(b"two")
    assert not line.is_closed
    stream.end()
    (answer,) = read_whole(line.transport.written)
    assert answer.body == b"onetwo"
    assert answer.headers == {b"content-type": b"text/plain", b"connection": b"close"}
    assert line.is_closed


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_head_has_no_body(version: str) -> None:
    line = Line()
    stream = begun(line, get("/later", method="HEAD", version=version))
    head = line.transport.written
    assert head.endswith(b"\r\n\r\n")
    stream.write(b"one")
    stream.end()
    assert line.transport.written == head
    assert line.is_closed is (version == "1.0")


class TestOrder:
    def test_a_stream_waits_for_the_answers_before_it(self) -> None:
        line = Line()
        line.send(get("/later"))
        stream = begun(line)
        stream.write(b"one")
        assert line.transport.written == b""
        line.server.seen[0].respond_json(b"{}")
        first, second = read_whole(line.transport.written)
        assert first.body == b"{}"
        assert (second.chunks, second.ended) == ([b"one"], False)
        stream.write(b"two")
        stream.end()
        assert read_whole(line.transport.written)[1].chunks == [b"one", b"two"]

    def test_a_stream_that_has_ended_waits_too(self) -> None:
        line = Line()
        line.send(get("/later"))
        stream = begun(line)
        stream.write(b"one")
        stream.end()
        assert line.transport.written == b""
        line.send(get("/now/3"))
        line.server.seen[0].respond_json(b"{}")
        assert [answer.body for answer in read_whole(line.transport.written)] == [b"{}", b"one", b"[3]"]

    def test_answers_wait_for_the_stream_before_them(self) -> None:
        line = Line()
        stream = begun(line)
        line.send(get("/now/2"))
        stream.write(b"one")
        assert len(read_whole(line.transport.written)) == 1
        stream.end()
        assert [answer.body for answer in read_whole(line.transport.written)] == [b"one", b"[2]"]

    def test_streams_after_streams(self) -> None:
        line = Line()
        streams = [begun(line) for _ in range(3)]
        for piece in (b"a", b"b"):
            for number in (2, 0, 1):
                streams[number].write(piece + b"%d" % number)
        for number in (1, 2, 0):
            streams[number].end()
        assert [answer.body for answer in read_whole(line.transport.written)] == [b"a0b0", b"a1b1", b"a2b2"]


class TestGone:
    def test_the_model_is_told_and_nothing_is_written(self) -> None:
        line = Line()
        stream = begun(line)
        gone: list[bool] = []
        line.server.seen[0].on_abandon = lambda: gone.append(True)
        sent = line.transport.written
        line.connection.connection_lost(None)
        stream.write(b"one")
        stream.end()
        assert gone == [True]
        assert line.transport.written == sent

    def test_a_stream_that_begins_after_its_client_has_gone(self) -> None:
        line = Line()
        line.send(post("/later"))
        line.connection.connection_lost(None)
        stream = line.server.seen[0].begin_stream(200, TEXT)
        stream.write(b"one")
        stream.end()
        assert line.transport.written == b""

    def test_a_half_closed_client_is_probed_within_the_chunks(self) -> None:
        line = Line()
        stream = begun(line)
        stream.write(b"one")
        assert line.shut_down()
        line.server.wait()
        assert line.transport.written.endswith(b"one\r\n0"), "nothing but the first digit of the next chunk"
        stream.write(b"two")
        stream.end()
        (answer,) = read_whole(line.transport.written)
        assert (answer.chunks, answer.ended) == ([b"one", b"two"], True)
        assert line.is_closed

    def test_a_probe_before_the_end(self) -> None:
        line = Line()
        stream = begun(line)
        line.shut_down()
        line.server.wait()
        stream.end()
        assert read_whole(line.transport.written)[0].ended

    @pytest.mark.parametrize("request_", [post("/later", version="1.0"), get("/later", method="HEAD")])
    def test_what_has_no_chunks_is_not_probed(self, request_: bytes) -> None:
        line = Line()
        begun(line, request_)
        sent = line.transport.written
        line.shut_down()
        line.server.wait()
        assert line.transport.written == sent

    def test_one_that_is_seen_to_be_gone_is_cut(self) -> None:
        line = Line()
        begun(line)
        line.shut_down()
        line.server.wait()
        line.transport.error = 104
        line.server.wait()
        assert line.transport.aborted


class TestPace:
    def sweep(self, line: Line, now: float) -> None:
        line.server.now = now
        line.connection.check_progress(now)

    def test_a_stalled_model_is_waited_for(self) -> None:
        line = Line(limits=HttpLimits(idle_seconds=1, read_seconds=1, write_seconds=1))
        stream = begun(line)
        for now in range(1, 1000):
            self.sweep(line, float(now))
        stream.write(b"one")
        stream.end()
        assert not line.transport.closed

    def test_a_client_that_takes_nothing_is_cut_though_pieces_are_added(self) -> None:
        line = Line(limits=HttpLimits(write_seconds=5))
        stream = begun(line)
        for now in range(1, 20):
            before = len(line.transport.written)
            stream.write(b"x" * 100)
            line.transport.stuck += len(line.transport.written) - before
            self.sweep(line, float(now))
            if line.transport.aborted:
                break
        assert 5 <= now <= 8

    def test_a_client_that_takes_something_is_not(self) -> None:
        line = Line(limits=HttpLimits(write_seconds=5))
        stream = begun(line)
        line.transport.stuck = 10_000
        for now in range(1, 50):
            stream.write(b"x" * 100)
            line.transport.stuck += 50
            self.sweep(line, float(now))
        assert not line.transport.aborted

    def fallen_behind(self, line: Line, unsent: int) -> Stream:
        stream = begun(line)
        line.transport.stuck = unsent
        return stream

    def test_a_client_that_stays_behind_is_cut_and_its_request_abandoned(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        line = Line()
        stream = self.fallen_behind(line, stream_module._MOST_UNSENT + 1)
        gone: list[bool] = []
        line.server.seen[0].on_abandon = lambda: gone.append(True)
        for now in (0.0, 1.0, 2.0):
            line.server.now = now
            stream.write(b"x")
        assert not line.transport.aborted
        line.server.now = 3.0
        with caplog.at_level(logging.WARNING, "bident.http"):
            stream.write(b"x")
        assert line.transport.aborted
        assert gone == [True]
        assert [record.getMessage() for record in caplog.records] == [
            f"a client that does not keep up with /later was cut off: {stream_module._MOST_UNSENT + 1} bytes of "
            "answers waited for it"
        ]
        line.connection.connection_lost(None)
        assert gone == [True]

    def test_one_that_catches_up_is_not(self) -> None:
        line = Line()
        stream = self.fallen_behind(line, stream_module._MOST_UNSENT + 1)
        for now in range(20):
            line.server.now = float(now)
            line.transport.stuck = stream_module._MOST_UNSENT + now % 2
            stream.write(b"x")
        assert not line.transport.aborted

    def test_far_too_much_is_cut_at_once(self) -> None:
        line = Line()
        stream = self.fallen_behind(line, stream_module.MOST_AT_ONCE + 1)
        stream.write(b"x")
        assert line.transport.aborted

    def test_what_waits_for_its_turn_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stream_module, "_MOST_UNSENT", 1000)
        monkeypatch.setattr(stream_module, "MOST_AT_ONCE", 4000)
        line = Line()
        line.send(get("/later"))
        stream = begun(line)
        written = 0
        while not line.transport.aborted:
            stream.write(b"x" * 100)
            written += 100
            assert written < 10_000
        assert 3800 <= written <= 4100
        assert line.transport.written == b""


class TestFaults:
    def test_a_second_answer_breaks_the_stream_off(self) -> None:
        line = Line()
        stream = begun(line)
        stream.write(b"one")
        sent = line.transport.written
        line.server.seen[0].respond_error(500, "a fault")
        assert line.transport.aborted
        assert line.transport.written == sent

    def test_a_fault_in_what_serves_it_too(self, caplog: pytest.LogCaptureFixture) -> None:
        server = LineServer()

        def begin_and_fail(exchange: Exchange) -> None:
            exchange.begin_stream(200, TEXT).write(b"one")
            raise RuntimeError("a secret")

        server.routes.add("GET", "/fails", begin_and_fail)
        line = Line(server)
        line.send(get("/fails"))
        assert line.transport.aborted
        assert b"secret" not in line.transport.written
        assert "serving /fails failed" in caplog.text


class TestDrain:
    def test_a_stream_is_owed_to_its_end_and_the_last_answer(self) -> None:
        line = Line()
        stream = begun(line)
        line.server.is_draining = True
        assert line.server.owes_answers
        stream.write(b"one")
        assert line.server.owes_answers
        stream.end()
        assert not line.server.owes_answers
        assert line.is_closed
