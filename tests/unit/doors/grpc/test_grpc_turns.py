"""What clients of a gRPC door may not do to each other: turns of the loop, memory that waits, ends of connections."""

from __future__ import annotations

import gc
import gzip
import random
import time
import tracemalloc
from collections.abc import Callable

import pytest
from grpc_line import CALL, Line, LineServer, block, data, headers, prefixed, settings, with_path

from bident.doors.grpc import frames
from bident.doors.grpc.call import Buffer, Call, Method, Status
from bident.doors.grpc.frames import ACK, END_HEADERS, END_STREAM, ErrorCode, Kind, frame
from bident.doors.grpc.inbox import WINDOW
from bident.doors.grpc.limits import GrpcLimits
from bident.doors.grpc.turns import _MESSAGES

EMPTY_MESSAGES = bytes(16380)
"""The content of a frame: 3276 messages without any."""


def serve_stream(server: LineServer, on_message: Callable[[Call, Buffer], None], *, paused: bool = False) -> str:
    """A streaming method whose messages go to ``on_message``; its path."""

    def begin(call: Call) -> None:
        call.on_message = lambda message: on_message(call, message)
        call.on_half_close = call.finish
        if paused:
            call.pause()

    server.service.methods[b"/test.Echo/Own"] = Method(open=begin)
    return "/test.Echo/Own"


class TestTurns:
    def test_a_frame_of_small_messages_does_not_hold_up_the_others(self) -> None:
        server = LineServer()
        got: list[Buffer] = []
        line, neighbour = Line(server), Line(server)
        number = line.begin(serve_stream(server, lambda _, message: got.append(message)))
        line.connection.data_received(data(number, EMPTY_MESSAGES) * 3)
        assert len(got) == _MESSAGES
        neighbour.connection.data_received(headers(1) + data(1, prefixed(b"neighbour"), END_STREAM))
        assert server.service.got == [b"neighbour"]
        server.turn()
        assert len(got) == 2 * _MESSAGES
        line.send(data(number, prefixed(b"last"), END_STREAM))
        assert len(got) == 3 * 3276 + 1
        assert got[-1] == b"last"
        assert line.answer(number).status == Status.OK
        assert server.held.size == 0

    def test_streams_of_a_connection_share_its_turns(self) -> None:
        server = LineServer()
        got: list[Call] = []
        line = Line(server)
        path = serve_stream(server, lambda call, _: got.append(call))
        first, second = line.begin(path), line.begin(path)
        line.connection.data_received(data(first, EMPTY_MESSAGES) + data(second, EMPTY_MESSAGES))
        assert len(got) == _MESSAGES
        server.settle()
        calls = list(dict.fromkeys(got))
        assert [got.count(call) for call in calls] == [3276, 3276]
        # The one that waited second had its turn before the first was through.
        assert got.index(calls[1]) < 3276

    def test_large_header_blocks_end_a_turn(self) -> None:
        server = LineServer(GrpcLimits(head_bytes=256 * 1024))
        line = Line(server)
        fields = (*with_path("/test.Echo/Later"), *((b"x-%d" % index, b"v" * 150) for index in range(80)))
        asked = [headers(number, *fields) + data(number, prefixed(b"x"), END_STREAM) for number in range(1, 41, 2)]
        # Each is worded differently, or it would be known.
        line.connection.data_received(
            b"".join(each.replace(b"v", b"%c" % (97 + index)) for index, each in enumerate(asked))
        )
        assert len(server.service.got) < 5
        server.settle()
        assert len(server.service.got) == 20

    def test_settings_that_move_the_windows_of_many_calls(self) -> None:
        line = Line()
        for number in range(1, 4097, 2):
            line.connection.data_received(
                headers(number, *with_path("/test.Echo/Later")) + data(number, prefixed(b"x"), END_STREAM)
            )
        line.server.settle()
        sizes = b"".join(b"\0\x04" + (70_000 + size).to_bytes(4, "big") for size in range(128))
        began = time.process_time()
        line.send(*[frame(Kind.SETTINGS, 0, 0, sizes)] * 300)
        assert time.process_time() - began < 2
        assert line.goaway() == ErrorCode.ENHANCE_YOUR_CALM


class TestWindowsOfWaitingCalls:
    def test_calls_that_have_not_been_answered_have_windows_too(self) -> None:
        line = Line()
        number = line.begin("/test.Echo/Later")
        line.send(data(number, prefixed(b"x"), END_STREAM))
        stream = line.begin("/test.Echo/Kept")
        line.send(settings(initial_window_size=10))
        line.send(settings(initial_window_size=100_000))
        assert line.goaway() is None
        line.send(frames.window_update(0, 1 << 20))
        line.service.later[0].reply(b"y" * 90_000)
        assert line.answer(number).messages == [b"y" * 90_000]
        line.service.streams[0].finish()
        assert line.answer(stream).status == Status.OK

    def test_the_last_of_several_sizes_counts_and_each_has_to_be_one(self) -> None:
        line = Line()
        several = [(4).to_bytes(2, "big") + size.to_bytes(4, "big") for size in (0, 1 << 20, 7)]
        line.send(frame(Kind.SETTINGS, 0, 0, b"".join(several)))
        line.ask(b"10", "/test.Echo/Size")
        assert len(line.of_kind(Kind.DATA)[0].payload) == 7
        line.send(frame(Kind.SETTINGS, 0, 0, b"\0\x04" + b"\x80\0\0\0" + several[0]))
        assert line.goaway() == ErrorCode.FLOW_CONTROL_ERROR


class TestWhatWaits:
    def test_empty_messages_of_a_paused_call_cost_no_more_than_their_bytes(self) -> None:
        server = LineServer()
        got: list[Buffer] = []
        calls: list[Call] = []
        line = Line(server)

        def begin(call: Call) -> None:
            calls.append(call)
            call.on_message = got.append
            call.on_half_close = call.finish
            call.pause()

        server.service.methods[b"/test.Echo/Own"] = Method(open=begin)
        number = line.begin("/test.Echo/Own")
        gc.collect()
        tracemalloc.start()
        count = WINDOW // len(EMPTY_MESSAGES)
        for _ in range(count):
            line.connection.data_received(data(number, EMPTY_MESSAGES))
        assert tracemalloc.get_traced_memory()[0] < 2 * WINDOW
        tracemalloc.stop()
        assert server.held.size == count * len(EMPTY_MESSAGES)
        assert got == []
        calls[0].resume()
        line.send(data(number, b"", END_STREAM))
        assert len(got) == count * 3276
        assert line.answer(number).status == Status.OK
        assert server.held.size == 0

    def test_nothing_is_kept_of_a_frame_in_which_its_call_ends(self) -> None:
        server = LineServer()
        line = Line(server)
        number = line.begin(serve_stream(server, lambda call, _: call.finish(Status.INVALID_ARGUMENT, "no")))
        line.send(data(number, prefixed(b"bad") + b"\0\0\1\0\0" + b"part of the next one"))
        assert line.answer(number).status == Status.INVALID_ARGUMENT
        assert server.held.size == 0

    def test_a_call_whose_answers_are_not_taken_is_asked_nothing_more(self) -> None:
        server = LineServer(GrpcLimits(unsent_bytes=10_000))
        got: list[Buffer] = []

        def answer(call: Call, message: Buffer) -> None:
            got.append(message)
            call.send(b"a" * 1000)

        line = Line(server)
        line.send(settings(initial_window_size=0))
        number = line.begin(serve_stream(server, answer))
        line.send(data(number, EMPTY_MESSAGES[:500], END_STREAM))
        assert len(got) == 10
        other = line.begin(serve_stream(server, answer))
        line.send(data(other, prefixed(b"")))
        assert len(got) == 10
        line.send(frames.window_update(number, 1 << 20), frames.window_update(0, 1 << 20))
        assert len(line.answer(number).messages) == 100
        assert line.answer(number).status == Status.OK
        assert len(got) == 101
        line.send(frames.rst_stream(other, ErrorCode.CANCEL))
        assert server.held.size == 0

    def test_requests_held_back_go_with_their_calls(self) -> None:
        server = LineServer(GrpcLimits(unsent_bytes=1000))
        line = Line(server)
        line.send(settings(initial_window_size=0))
        line.ask(b"2000", "/test.Echo/Size")
        before = server.held.size
        for _ in range(10):
            number = line.begin()
            line.send(data(number, prefixed(b"x" * 10_000), END_STREAM))
            assert server.held.size == before + 10_000
            line.send(frames.rst_stream(number, ErrorCode.CANCEL))
        assert server.held.size == before
        kept = [line.begin(), line.begin("/test.Echo/Unary", (b"grpc-timeout", b"1S"))]
        for number in kept:
            line.send(data(number, prefixed(b"kept"), END_STREAM))
        server.wait(2)
        assert line.answer(kept[1]).status == Status.DEADLINE_EXCEEDED
        line.send(settings(initial_window_size=65535))
        assert line.answer(kept[0]).messages == [b"kept"]
        assert server.service.got == [b"kept"]
        assert server.held.size == 0


class TestPatience:
    @pytest.mark.parametrize(
        "part",
        [
            frame(Kind.HEADERS, 0, 1, block(*CALL)),
            frame(Kind.PING, 0, 0, bytes(8))[:12],
            headers(1)[:20],
            frame(Kind.HEADERS, 0, 1, block(*CALL)) + frame(Kind.CONTINUATION, 0, 1, b""),
        ],
    )
    def test_a_frame_or_header_block_that_does_not_end(self, part: bytes) -> None:
        line = Line()
        line.send(part)
        line.server.wait(29)
        assert not line.is_ended
        line.server.wait(3)
        assert line.goaway() == ErrorCode.ENHANCE_YOUR_CALM
        assert line.is_ended

    def test_a_header_block_has_to_come_in_time_as_a_whole(self) -> None:
        line = Line()
        line.send(frame(Kind.HEADERS, 0, 1, b""))
        for _ in range(5):
            line.server.wait(7)
            line.send(frame(Kind.CONTINUATION, 0, 1, b""))
        assert line.goaway() == ErrorCode.ENHANCE_YOUR_CALM

    def test_a_client_that_we_make_wait_is_not_in_debt(self) -> None:
        server = LineServer()
        line = Line(server)
        number = line.begin("/test.Echo/Kept")
        (call,) = server.service.streams
        call.pause()
        line.send(data(number, prefixed(b"one") + prefixed(b"two")[:6]))
        server.wait(300)
        assert line.answer(number).head == {}
        call.resume()
        server.wait(20)
        line.send(data(number, b"wo", END_STREAM))
        assert server.service.got == [b"one", b"two"]
        assert server.service.ended == [call]

    def test_a_large_header_block_gets_an_answer_and_a_huge_one_ends_the_connection(self) -> None:
        line = Line()

        def ask(number: int, size: int) -> list[bytes]:
            whole = block(*CALL, (b"x", b"v" * size))
            parts = [whole[at : at + 16_000] for at in range(0, len(whole), 16_000)]
            return [
                frame(
                    Kind.CONTINUATION if index else Kind.HEADERS,
                    (END_HEADERS if index == len(parts) - 1 else 0) | (0 if index else END_STREAM),
                    number,
                    part,
                )
                for index, part in enumerate(parts)
            ]

        line.send(*ask(1, 100_000))
        assert line.answer(1).status == Status.RESOURCE_EXHAUSTED
        assert line.goaway() is None
        line.send(*ask(3, 200_000))
        assert line.goaway() == ErrorCode.ENHANCE_YOUR_CALM


class TestEnds:
    def test_frames_behind_the_last_word_are_not_looked_at(self) -> None:
        line = Line()
        line.server.is_draining = True
        line.server.settle()
        # The answer to our ping ends the connection, which has no calls; a call follows in the same packet.
        line.send(frame(Kind.PING, ACK, 0, b"draining"), headers(1), data(1, prefixed(b"x"), END_STREAM))
        assert line.transport.eof_written
        assert line.service.got == []
        assert line.goaway() == ErrorCode.NO_ERROR

    def test_a_connection_that_cannot_be_written_to_costs_no_other_its_answers(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server = LineServer()
        broken, sound = Line(server), Line(server)

        def fail(_: object) -> None:
            raise RuntimeError("the transport is broken")

        monkeypatch.setattr(broken.transport, "write", fail)
        asked = headers(1) + data(1, prefixed(b"x"), END_STREAM)
        broken.connection.data_received(asked)
        sound.connection.data_received(asked)
        assert sound.answer(1).messages == [b"x"]
        assert broken.transport.aborted
        assert "writing to a client failed" in caplog.text


class TestWhateverTheFrames:
    """Messages come whole and in order, however they are cut into frames and whenever the service pauses."""

    @pytest.mark.parametrize("seed", range(25))
    def test_messages_of_a_stream(self, seed: int) -> None:
        chance = random.Random(seed)
        server = LineServer()
        line = Line(server)
        number = line.begin("/test.Echo/Kept", (b"grpc-encoding", b"gzip"))
        (call,) = server.service.streams
        sent = [chance.randbytes(chance.choice([0, 0, 1, 5, 100, 20_000])) for _ in range(chance.choice([3, 60, 700]))]
        content = b""
        for message in sent:
            is_packed = chance.random() < 0.1 and len(message) < 1000
            content += prefixed(gzip.compress(message), packed=1) if is_packed else prefixed(message)
        at = 0
        while at < len(content):
            size = chance.choice([1, 4, 6, 300, 16_384])
            line.connection.data_received(data(number, content[at : at + size]))
            at += size
            if chance.random() < 0.2:
                chance.choice([call.pause, call.resume, server.turn])()
        line.send(data(number, b"", END_STREAM))
        call.resume()
        server.settle()
        assert server.service.got == sent
        assert server.service.ended == [call]
        assert server.held.size == 0
