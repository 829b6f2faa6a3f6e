"""Flow control in both directions: nothing is sent that the client does not take, and nothing is lost by waiting."""

from __future__ import annotations

import pytest
from grpc_line import Line, LineServer, data, headers, prefixed, settings, with_path

from bident.doors.grpc import frames
from bident.doors.grpc.call import Status
from bident.doors.grpc.frames import END_STREAM, ErrorCode, Kind
from bident.doors.grpc.inbox import WINDOW
from bident.doors.grpc.limits import GrpcLimits


def content_sent(line: Line, number: int = 0) -> int:
    """How many bytes of DATA came, on stream ``number`` if given."""
    return sum(len(frame.payload) for frame in line.of_kind(Kind.DATA) if number in (0, frame.stream))


def test_a_large_answer_waits_for_the_windows() -> None:
    line = Line()
    answer = line.ask(b"200000", "/test.Echo/Size")
    assert content_sent(line) == 65535
    assert not answer.has_ended
    line.send(frames.window_update(1, 100_000))
    assert content_sent(line) == 65535  # the connection's window is closed still
    line.send(frames.window_update(0, 50_000))
    assert content_sent(line) == 115_535
    line.send(frames.window_update(0, 1 << 20), frames.window_update(1, 1 << 20))
    assert line.answer(1).messages == [b"\xab" * 200_000]
    assert line.answer(1).has_ended
    assert line.server.held.size == 0


def test_the_first_window_of_new_and_open_streams_is_a_setting() -> None:
    line = Line()
    line.send(settings(initial_window_size=0))
    line.ask(b"10", "/test.Echo/Size")
    assert content_sent(line) == 0
    line.send(settings(initial_window_size=8))
    assert content_sent(line) == 8
    line.send(settings(initial_window_size=4))  # the window is -4 now
    line.send(frames.window_update(1, 4))
    assert content_sent(line) == 8
    line.send(frames.window_update(1, 1))
    assert content_sent(line) == 9
    line.send(settings(initial_window_size=100))
    assert line.answer(1).messages == [b"\xab" * 10]


def test_frames_are_as_large_as_the_client_takes_them() -> None:
    line = Line()
    line.send(settings(max_frame_size=40_000, initial_window_size=1 << 20), frames.window_update(0, 1 << 20))
    line.ask(b"100000", "/test.Echo/Size")
    assert [len(frame.payload) for frame in line.of_kind(Kind.DATA)] == [40_000, 40_000, 20_005]


def test_a_closed_window_of_one_stream_holds_up_no_other() -> None:
    line = Line()
    line.send(settings(initial_window_size=100), frames.window_update(0, 1 << 20))
    line.ask(b"1000", "/test.Echo/Size")
    assert line.ask(b"hello").messages == [b"hello"]
    line.send(frames.window_update(1, 10_000))
    assert line.answer(1).messages == [b"\xab" * 1000]


def test_streams_take_turns() -> None:
    line = Line()
    line.send(settings(initial_window_size=1 << 24))
    for number in (1, 3):
        line.send(headers(number, *with_path("/test.Echo/Size")), data(number, prefixed(b"400000"), END_STREAM))
    line.send(frames.window_update(0, 1 << 22))
    order = [frame.stream for frame in line.of_kind(Kind.DATA)]
    both = order.index(3)
    assert order[both : both + 6] in ([3, 1, 3, 1, 3, 1], [3, 1] * 3)
    assert [len(line.answer(number).messages[0]) for number in (1, 3)] == [400_000] * 2


def test_a_stream_of_answers_keeps_its_order_through_a_closed_window() -> None:
    line = Line()
    line.send(settings(initial_window_size=50))
    number = line.begin("/test.Echo/Kept")
    (call,) = line.service.streams
    for index in range(50):
        call.send(b"message %d" % index)
    assert call.unsent > 0
    call.finish()
    assert not line.answer(number).has_ended
    while not line.answer(number).has_ended:
        before = content_sent(line)
        line.send(frames.window_update(number, 37))
        assert content_sent(line) == min(before + 37, 50 * 5 + sum(len(b"message %d" % index) for index in range(50)))
    assert line.answer(number).messages == [b"message %d" % index for index in range(50)]
    assert line.answer(number).status == 0


def test_a_client_that_does_not_read_gets_no_more_written() -> None:
    line = Line()
    line.send(settings(initial_window_size=1 << 24), frames.window_update(0, 1 << 24))
    line.connection.pause_writing()
    line.ask(b"1000000", "/test.Echo/Size")
    assert line.ask(b"small").messages == []
    assert content_sent(line) == 0
    line.connection.resume_writing()
    assert line.answer(3).messages == [b"small"]
    assert line.answer(1).messages == [b"\xab" * 1_000_000]


def test_a_reset_stream_keeps_nothing() -> None:
    line = Line()
    line.ask(b"1000000", "/test.Echo/Size")
    assert line.server.held.size > 900_000
    line.send(frames.rst_stream(1, ErrorCode.CANCEL))
    assert line.server.held.size == line.connection.outflow.unsent == 0
    line.send(frames.window_update(0, 1 << 24))
    assert content_sent(line) == 65535


def test_windows_are_given_back_as_content_comes() -> None:
    line = Line()
    number = line.begin()
    size = 3 * WINDOW
    line.send(data(number, b"\0" + size.to_bytes(4, "big")))
    given = sent = 0
    while sent < size:
        line.send(data(number, bytes(16384)))
        sent += 16384
        given = sum(frames.number(frame.payload) for frame in line.of_kind(Kind.WINDOW_UPDATE) if frame.stream)
        assert sent - given <= WINDOW // 2
    line.send(data(number, b"", END_STREAM))
    assert line.answer(number).head[b":status"] == b"200"
    assert line.service.got == [bytes(size)]


def test_a_paused_stream_gives_nothing_back_and_its_window_holds() -> None:
    line = Line()
    number = line.begin("/test.Echo/Kept")
    line.service.streams[0].pause()
    for _ in range(WINDOW // 16384):
        line.send(data(number, prefixed(bytes(16379))))
    assert [frame for frame in line.of_kind(Kind.WINDOW_UPDATE) if frame.stream] == []
    line.send(data(number, prefixed(b"")))
    assert line.answer(number).reset == ErrorCode.FLOW_CONTROL_ERROR
    assert line.service.cancelled == line.service.streams
    assert line.server.held.size == 0


def test_the_window_opens_when_a_paused_stream_goes_on() -> None:
    line = Line()
    number = line.begin("/test.Echo/Kept")
    (call,) = line.service.streams
    call.pause()
    for _ in range(200):
        line.send(data(number, prefixed(bytes(16379))))
    call.resume()
    (update,) = [frame for frame in line.of_kind(Kind.WINDOW_UPDATE) if frame.stream == number]
    assert frames.number(update.payload) == 200 * 16384
    assert len(line.service.got) == 200


def test_who_leaves_answers_waiting_gets_no_further_calls_begun() -> None:
    line = Line(limits=GrpcLimits(unsent_bytes=100_000))
    line.ask(b"500000", "/test.Echo/Size")
    line.ask(b"waits")
    line.ask(b"cancelled meanwhile")
    assert line.service.got == []
    line.send(frames.rst_stream(5, ErrorCode.CANCEL))
    line.send(frames.window_update(1, 1 << 20), frames.window_update(0, 1 << 20))
    assert line.answer(3).messages == [b"waits"]
    assert line.service.got == [b"waits"]
    assert line.server.held.size == 0


def test_all_connections_together_are_bounded() -> None:
    server = LineServer(GrpcLimits(held_bytes=1_000_000))
    first, second = Line(server), Line(server)
    first.ask(b"1200000", "/test.Echo/Size")
    assert second.ask(b"100000", "/test.Echo/Size").reset == ErrorCode.ENHANCE_YOUR_CALM
    assert second.ask(b"small").messages == [b"small"]
    number = second.begin()
    second.send(data(number, b"\0" + (1000).to_bytes(4, "big") + b"x"))
    assert second.answer(number).status == Status.RESOURCE_EXHAUSTED
    first.lose()
    assert server.held.size == 0
    assert len(second.ask(b"60000", "/test.Echo/Size").data) > 0


@pytest.mark.parametrize("window", [1, 7, 64, 1000])
def test_any_window_lets_everything_through_in_the_end(window: int) -> None:
    line = Line()
    line.send(settings(initial_window_size=0))
    line.ask(b"3000", "/test.Echo/Size")
    while not line.answer(1).has_ended:
        line.send(frames.window_update(1, window))
    assert line.answer(1).messages == [b"\xab" * 3000]


def test_errors_that_nobody_reads_stop_the_reading_of_requests() -> None:
    line = Line()
    line.connection.pause_writing()
    line.ask(path="/test.Echo/Missing")
    assert line.transport.receiving
    line.transport.stuck = 2 << 20
    line.ask(path="/test.Echo/Missing")
    assert not line.transport.receiving
    line.transport.stuck = 0
    line.connection.resume_writing()
    assert line.transport.receiving
    assert line.ask().messages == [b"hello"]


def test_a_message_that_has_been_sent_in_part_is_not_followed_by_trailers() -> None:
    line = Line()
    number = line.begin("/test.Echo/Kept", (b"grpc-timeout", b"5S"))
    (call,) = line.service.streams
    call.send(bytes(100_000))
    call.finish()
    line.server.wait(6)
    answer = line.answer(number)
    assert (answer.reset, answer.trailers) == (ErrorCode.CANCEL, {})
    assert line.server.held.size == 0
