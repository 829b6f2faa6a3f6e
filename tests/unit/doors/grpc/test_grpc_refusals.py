"""When requests that are not gRPC are answered: clients of plain HTTP read it best once they have sent everything."""

from __future__ import annotations

import pytest

from bident.doors.grpc import frames
from bident.doors.grpc.call import Status
from bident.doors.grpc.frames import ACK, END_STREAM, ErrorCode, Kind
from bident.doors.grpc.limits import GrpcLimits
from tests.unit.doors.grpc.grpc_line import CALL, Line, data, headers, prefixed

_JSON = tuple((name, b"application/json" if name == b"content-type" else value) for name, value in CALL)


def _begun(**limits: int) -> Line:
    line = Line(limits=GrpcLimits(**limits))
    line.send(headers(1, *_JSON))
    return line


def _status(line: Line, number: int = 1) -> bytes | None:
    answer = line.answer(number)
    assert answer.has_ended == bool(answer.head)
    return answer.head.get(b":status")


def _is_served(line: Line, number: int) -> bool:
    line.send(headers(number), data(number, prefixed(b"x"), END_STREAM))
    return line.answer(number).messages == [b"x"]


def test_the_answer_waits_for_the_end_of_the_request() -> None:
    line = _begun()
    line.send(data(1, b"{"))
    assert _status(line) is None
    line.send(data(1, b"}", END_STREAM))
    assert _status(line) == b"415"
    assert b"application/grpc" in line.answer(1).data
    assert _is_served(line, 9)


def test_trailers_end_a_request_too() -> None:
    line = _begun()
    line.send(headers(1, (b"x", b"y"), flags=END_STREAM))
    assert _status(line) == b"415"
    assert line.goaway() is None


def test_a_request_too_long_to_wait_for_is_answered_and_told_to_stop() -> None:
    line = _begun()
    line.send(*[data(1, b"x" * 16384)] * 70)
    assert _status(line) == b"415"
    assert line.answer(1).reset == ErrorCode.NO_ERROR
    assert _is_served(line, 9)


def test_a_request_that_stops_half_way_is_answered() -> None:
    line = _begun()
    line.server.wait(2)
    assert _status(line) is None
    line.server.wait(2)
    assert _status(line) == b"415"
    assert line.answer(1).reset is None
    line.send(data(1, b"late", END_STREAM))
    assert line.goaway() is None


def test_a_client_that_goes_gets_nothing() -> None:
    line = _begun()
    line.send(frames.rst_stream(1, ErrorCode.CANCEL))
    assert line.connection.calls.is_idle
    line.server.wait(5)
    assert _status(line) is None
    assert line.goaway() is None


def test_a_broken_rule_ends_the_request() -> None:
    line = _begun()
    line.send(frames.frame(Kind.PRIORITY, 0, 1, b"xx"))
    assert line.answer(1).reset == ErrorCode.FRAME_SIZE_ERROR
    assert line.connection.calls.is_idle


def test_waiting_answers_count_as_open_calls() -> None:
    line = _begun(streams=2)
    line.send(headers(3, *_JSON), headers(5, *_JSON))
    assert line.answer(5).reset == ErrorCode.REFUSED_STREAM
    assert not _is_served(line, 7)
    line.send(data(1, b"", END_STREAM))
    assert _is_served(line, 9)


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "does-not-end"])
def test_a_drain_lets_the_request_end(ends: bool) -> None:
    line = _begun()
    line.server.is_draining = True
    assert line.server.owes_answers
    (asked,) = [ping for ping in line.of_kind(Kind.PING) if not ping.flags]
    line.send(frames.frame(Kind.PING, ACK, 0, asked.payload))
    assert not line.is_ended
    if ends:
        line.send(data(1, b"{}", END_STREAM))
    else:
        line.server.wait(4)
    assert _status(line) == b"415"
    assert line.is_ended
    assert not line.server.owes_answers


def test_the_servers_end_answers_what_waits() -> None:
    line = _begun()
    line.connection.calls.end_all(Status.UNAVAILABLE, "Server exiting")
    assert _status(line) == b"415"
