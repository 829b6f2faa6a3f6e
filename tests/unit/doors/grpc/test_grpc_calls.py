"""Calls over a gRPC connection: what is answered to what, and with which status."""

from __future__ import annotations

import gzip
import logging
import zlib

import pytest
from grpc_line import CALL, Line, LineServer, block, data, headers, prefixed, settings

from bident.doors.access import GRPC_PREFIX, Access
from bident.doors.grpc import frames
from bident.doors.grpc.call import Status
from bident.doors.grpc.frames import END_HEADERS, END_STREAM, ErrorCode, Kind
from bident.doors.grpc.limits import GrpcLimits
from bident.settings.values import Api, RestrictedApi


def test_a_unary_call() -> None:
    answer = Line().ask(b"hello")
    assert answer.head == {b":status": b"200", b"content-type": b"application/grpc"}
    assert answer.messages == [b"hello"]
    assert answer.trailers == {b"grpc-status": b"0"}
    assert answer.has_ended
    assert answer.reset is None


@pytest.mark.parametrize("size", [0, 1, 16378, 16379, 16380, 65000, 300_000])
def test_messages_of_every_size_come_back(size: int) -> None:
    line = Line()
    line.send(frames.window_update(0, 1 << 24), settings(initial_window_size=1 << 24))
    message = bytes(range(256)) * (size // 256 + 1)
    assert line.ask(message[:size]).messages == [message[:size]]


@pytest.mark.parametrize("sizes", [1, 2, 5, 9, 10, 100])
def test_it_does_not_matter_how_the_bytes_arrive(sizes: int) -> None:
    line = Line(hello=False)
    line.send(
        frames.PREFACE,
        settings(),
        headers(1),
        data(1, prefixed(b"first"), END_STREAM),
        headers(3),
        data(3, prefixed(b"second"), END_STREAM),
        sizes=sizes,
    )
    assert [line.answer(number).messages for number in (1, 3)] == [[b"first"], [b"second"]]


def test_a_message_may_come_in_any_frames() -> None:
    line = Line()
    number = line.begin()
    for at in range(len(whole := prefixed(b"in pieces"))):
        line.send(data(number, whole[at : at + 1]))
    line.send(data(number, b"", END_STREAM))
    assert line.answer(number).messages == [b"in pieces"]


def test_padding_and_priority_are_no_content() -> None:
    line = Line()
    head = bytes((3,)) + (0).to_bytes(4, "big") + b"\x10" + block(*CALL) + b"\0\0\0"
    line.send(frames.frame(Kind.HEADERS, END_HEADERS | frames.PADDED | frames.PRIORITY, 1, head))
    line.send(frames.frame(Kind.DATA, END_STREAM | frames.PADDED, 1, b"\x02" + prefixed(b"padded") + b"\0\0"))
    assert line.answer(1).messages == [b"padded"]


def test_a_header_block_may_continue() -> None:
    line = Line()
    whole = block(*CALL)
    line.send(
        frames.frame(Kind.HEADERS, 0, 1, whole[:10]),
        frames.frame(Kind.CONTINUATION, 0, 1, whole[10:20]),
        frames.frame(Kind.CONTINUATION, END_HEADERS, 1, whole[20:]),
        data(1, prefixed(b"x"), END_STREAM),
    )
    assert line.answer(1).messages == [b"x"]


def test_trailers_of_the_client_end_its_side() -> None:
    line = Line()
    number = line.begin()
    line.send(data(number, prefixed(b"x")))
    line.send(frames.frame(Kind.HEADERS, END_HEADERS | END_STREAM, number, block((b"x-checksum", b"1"))))
    assert line.answer(number).messages == [b"x"]


def test_a_streaming_call() -> None:
    line = Line()
    number = line.begin("/test.Echo/Stream")
    line.send(data(number, prefixed(b"one")), data(number, prefixed(b"two") + prefixed(b"three")))
    assert line.answer(number).messages == [b"one", b"two", b"three"]
    assert not line.answer(number).has_ended
    line.send(data(number, prefixed(b"four"), END_STREAM))
    answer = line.answer(number)
    assert answer.messages[-1] == b"four"
    assert (answer.status, answer.has_ended, answer.reset) == (0, True, None)


def test_a_paused_stream_takes_nothing_and_loses_nothing() -> None:
    line = Line()
    number = line.begin("/test.Echo/Kept")
    (call,) = line.service.streams
    call.pause()
    line.send(data(number, prefixed(b"one")), data(number, prefixed(b"two"), END_STREAM))
    assert (line.service.got, line.service.ended) == ([], [])
    call.resume()
    line.server.settle()
    assert (line.service.got, line.service.ended) == ([b"one", b"two"], [call])


def test_a_stream_that_is_paused_by_each_message_gets_them_one_by_one() -> None:
    line = Line()
    number = line.begin("/test.Echo/Kept")
    (call,) = line.service.streams
    got: list[bytes] = []

    def take(message: bytes) -> None:
        got.append(bytes(message))
        call.pause()

    call.on_message = take  # type: ignore[assignment]
    line.send(*(data(number, prefixed(b"%d" % index)) for index in range(3)), data(number, b"", END_STREAM))
    for count in (1, 2, 3):
        assert got == [b"%d" % index for index in range(count)]
        assert line.service.ended == []
        call.resume()
        line.server.settle()
    assert line.service.ended == [call]


def test_a_finished_call_may_still_be_spoken_to() -> None:
    line = Line()
    number = line.begin("/test.Echo/Kept")
    (call,) = line.service.streams
    call.finish(5, "gone")
    assert call.is_over
    call.send(b"late")
    call.reply(b"late")
    call.finish()
    call.pause()
    call.resume()
    answer = line.answer(number)
    assert (answer.status, answer.data, answer.reset) == (5, b"", ErrorCode.NO_ERROR)
    line.send(data(number, prefixed(b"also late"), END_STREAM))
    assert line.goaway() is None
    assert line.ask().status == 0


def test_errors_have_their_words_encoded() -> None:
    line = Line()
    number = line.begin("/test.Echo/Kept")
    line.service.streams[0].finish(3, "50% of 'größe'\n")
    assert line.answer(number).message == b"50%25 of 'gr%C3%B6%C3%9Fe'%0A"


def test_a_very_long_error_is_cut_between_characters() -> None:
    line = Line()
    number = line.begin("/test.Echo/Kept")
    line.service.streams[0].finish(3, "ö" * 100_000)
    message = line.answer(number).message
    assert len(message) < 7000
    assert message.endswith(b"...")
    assert len(message.removesuffix(b"...")) % 6 == 0


def test_a_fault_of_ours_is_answered_in_plain_words(caplog: pytest.LogCaptureFixture) -> None:
    line = Line()
    answer = line.ask(path="/test.Echo/Fault")
    assert answer.status == Status.INTERNAL
    assert b"secret" not in answer.message
    assert any(record.exc_info for record in caplog.records if record.levelno == logging.ERROR)
    assert line.ask().status == 0


@pytest.mark.parametrize(
    ("fields", "http_status", "fragment"),
    [
        ({b"content-type": b"application/json"}, b"415", b"application/grpc"),
        ({b"content-type": b"application/grpcx"}, b"415", b"application/grpc"),
        ({b"content-type": b"application/grpc+json"}, b"415", b"protocol buffers"),
        ({b"content-type": None}, b"415", b"there is none"),
        ({b":method": b"GET"}, b"405", b"POST"),
    ],
)
def test_what_is_not_grpc_gets_an_http_status(
    fields: dict[bytes, bytes | None], http_status: bytes, fragment: bytes
) -> None:
    line = Line()
    given = {**dict(CALL), **fields}
    line.send(headers(1, *((name, value) for name, value in given.items() if value is not None), flags=END_STREAM))
    answer = line.answer(1)
    assert answer.head[b":status"] == http_status
    assert fragment in answer.data
    assert answer.has_ended
    assert line.connection.calls.streams == {}


@pytest.mark.parametrize("kind", [b"application/grpc+proto", b"application/grpc;charset=utf-8", b"APPLICATION/GRPC"])
def test_content_types_that_are_grpc(kind: bytes) -> None:
    given = {**dict(CALL), b"content-type": kind}
    line = Line()
    line.send(headers(1, *given.items()), data(1, prefixed(b"x"), END_STREAM))
    assert line.answer(1).messages == [b"x"]


@pytest.mark.parametrize("path", ["/test.Echo/Other", "/", "Unary", "*", "/test.Echo/Unary/"])
def test_a_method_that_is_not_there(path: str) -> None:
    answer = Line().ask(path=path)
    assert answer.status == Status.UNIMPLEMENTED
    assert b"Method not found" in answer.message


@pytest.mark.parametrize(
    "fields",
    [
        [*CALL[1:]],
        [*CALL, (b":path", b"/twice")],
        [*CALL, (b"X-Upper", b"1")],
        [*CALL, (b"", b"1")],
        [*CALL, (b"connection", b"close")],
        [*CALL, (b"te", b"gzip")],
        [*CALL, (b"x", b"a\r\nb")],
        [*CALL, (b":status", b"200")],
        [*CALL[4:], *CALL[:4]],
    ],
)
def test_malformed_header_lists_reset_the_stream(fields: list[tuple[bytes, bytes]]) -> None:
    line = Line()
    line.send(headers(1, *fields, flags=END_STREAM))
    assert line.answer(1).reset == ErrorCode.PROTOCOL_ERROR
    assert line.ask().reset is None or line.goaway() is None
    line.send(headers(5), data(5, prefixed(b"x"), END_STREAM))
    assert line.answer(5).messages == [b"x"]


def test_metadata_is_joined_and_free_of_pseudo_headers() -> None:
    line = Line()
    line.ask(b"x", "/test.Echo/Later", (b"x-a", b"1"), (b"x-a", b"2"))
    (call,) = line.service.later
    assert call.method == b"/test.Echo/Later"
    assert dict(call.metadata) == {b"content-type": b"application/grpc", b"te": b"trailers", b"x-a": b"1, 2"}


@pytest.mark.parametrize(
    ("content", "status", "fragment"),
    [
        (b"", Status.UNIMPLEMENTED, b"none came"),
        (prefixed(b"a") + prefixed(b"b"), Status.UNIMPLEMENTED, b"exactly one message"),
        (b"\x02\0\0\0\0", Status.INTERNAL, b"0 or 1"),
        (prefixed(b"a", packed=1), Status.INTERNAL, b"grpc-encoding"),
        (b"\0\0", Status.INTERNAL, b"in the middle of a message"),
        (b"\0\0\0\0\x05abc", Status.INTERNAL, b"in the middle of a message"),
    ],
)
def test_what_is_not_exactly_one_message(content: bytes, status: Status, fragment: bytes) -> None:
    line = Line()
    number = line.begin("/test.Echo/Later")
    line.send(data(number, content, END_STREAM))
    answer = line.answer(number)
    assert answer.status == status
    assert fragment in answer.message
    assert line.service.later == []
    assert line.connection.calls.streams == {}


def test_a_message_over_the_limit_is_refused_before_it_has_come() -> None:
    line = Line(limits=GrpcLimits(message_bytes=100))
    number = line.begin()
    line.send(data(number, b"\0" + (101).to_bytes(4, "big")))
    answer = line.answer(number)
    assert answer.status == Status.RESOURCE_EXHAUSTED
    assert b"larger than max (101 vs. 100)" in answer.message
    assert answer.reset == ErrorCode.NO_ERROR
    assert line.ask(b"x" * 100).status == 0


@pytest.mark.parametrize("declared", [b"3", b"100"])
def test_a_declared_length_has_to_be_true(declared: bytes) -> None:
    line = Line()
    assert line.ask(b"x" * 4, "/test.Echo/Unary", (b"content-length", declared)).reset == ErrorCode.PROTOCOL_ERROR
    assert line.ask(b"x" * 4, "/test.Echo/Unary", (b"content-length", b"9")).messages == [b"xxxx"]


class TestCompression:
    @pytest.mark.parametrize(("name", "pack"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress)])
    def test_requests(self, name: bytes, pack: object) -> None:
        line = Line()
        number = line.begin("/test.Echo/Unary", (b"grpc-encoding", name))
        line.send(data(number, prefixed(pack(b"hello " * 100), packed=1), END_STREAM))  # type: ignore[operator]
        assert line.answer(number).messages == [b"hello " * 100]

    def test_a_message_may_be_plain_although_an_encoding_is_named(self) -> None:
        assert Line().ask(b"x", "/test.Echo/Unary", (b"grpc-encoding", b"gzip")).messages == [b"x"]

    def test_an_unknown_encoding_names_the_known_ones(self) -> None:
        answer = Line().ask(b"x", "/test.Echo/Unary", (b"grpc-encoding", b"br"))
        assert answer.status == Status.UNIMPLEMENTED
        assert answer.head[b"grpc-accept-encoding"] == b"identity,deflate,gzip"

    @pytest.mark.parametrize("broken", [b"no gzip", gzip.compress(b"x" * 100)[:-4], gzip.compress(b"x") + b"more"])
    def test_what_cannot_be_unpacked(self, broken: bytes) -> None:
        line = Line()
        number = line.begin("/test.Echo/Unary", (b"grpc-encoding", b"gzip"))
        line.send(data(number, prefixed(broken, packed=1), END_STREAM))
        assert line.answer(number).status == Status.INTERNAL
        assert line.server.held.size == 0

    def test_a_bomb_is_bounded_by_the_message_limit(self) -> None:
        line = Line(limits=GrpcLimits(message_bytes=1000))
        number = line.begin("/test.Echo/Unary", (b"grpc-encoding", b"gzip"))
        line.send(data(number, prefixed(gzip.compress(bytes(1_000_000)), packed=1), END_STREAM))
        answer = line.answer(number)
        assert answer.status == Status.RESOURCE_EXHAUSTED
        assert b"larger than max" in answer.message

    def test_answers_are_packed_only_where_both_sides_want_it(self) -> None:
        wanted = (b"grpc-accept-encoding", b"identity, deflate, gzip")
        line = Line(limits=GrpcLimits(compression_level=1))
        answer = line.ask(b"hello " * 100, "/test.Echo/Unary", wanted)
        assert answer.head[b"grpc-encoding"] == b"gzip"
        assert answer.data[0] == 1
        assert gzip.decompress(answer.data[5:]) == b"hello " * 100
        assert line.ask(b"x").messages == [b"x"]
        assert Line().ask(b"x", "/test.Echo/Unary", wanted).messages == [b"x"]


class TestDeadlines:
    @pytest.mark.parametrize(("text", "seconds"), [(b"3S", 3), (b"2000m", 2), (b"4000000u", 4), (b"1M", 60)])
    def test_a_call_ends_with_its_deadline(self, text: bytes, seconds: int) -> None:
        line = Line()
        line.ask(b"x", "/test.Echo/Later", (b"grpc-timeout", text))
        line.server.wait(seconds - 1)
        assert line.answer(1).head == {}
        line.server.wait(1)
        answer = line.answer(1)
        assert (answer.status, answer.message) == (Status.DEADLINE_EXCEEDED, b"Deadline Exceeded")
        assert line.service.cancelled == line.service.later
        line.service.later[0].reply(b"late")
        assert line.connection.calls.streams == {}

    def test_an_answered_call_has_no_deadline(self) -> None:
        line = Line()
        assert line.ask(b"x", "/test.Echo/Unary", (b"grpc-timeout", b"1S")).messages == [b"x"]
        line.server.wait(5)
        assert line.answers[1].trailers == {b"grpc-status": b"0"}

    @pytest.mark.parametrize("text", [b"", b"S", b"1", b"1x", b"123456789S", b"-1S", b"1.5S"])
    def test_a_deadline_that_is_none(self, text: bytes) -> None:
        answer = Line().ask(b"x", "/test.Echo/Unary", (b"grpc-timeout", text))
        assert answer.status == Status.INTERNAL
        assert b"grpc-timeout" in answer.message


class TestCancelling:
    def test_a_reset_reaches_the_service_once(self) -> None:
        line = Line()
        line.ask(b"x", "/test.Echo/Later")
        line.send(frames.rst_stream(1, ErrorCode.CANCEL))
        (call,) = line.service.cancelled
        assert call.is_over
        call.reply(b"late")
        line.lose()
        assert line.service.cancelled == [call]
        assert line.answer(1).head == {}

    def test_a_lost_connection_cancels_everything(self) -> None:
        line = Line()
        line.ask(b"x", "/test.Echo/Later")
        line.begin("/test.Echo/Kept")
        line.lose()
        assert line.service.cancelled == [*line.service.later, *line.service.streams]
        assert line.server.connection_count == 0
        assert line.server.held.size == 0


class TestAccess:
    def line(self) -> Line:
        rules = [RestrictedApi(frozenset({Api.INFERENCE}), "key", "open")]
        return Line(LineServer(access=Access.of(rules, prefix=GRPC_PREFIX)))

    def test_a_restricted_method_wants_its_header(self) -> None:
        line = self.line()
        answer = line.ask()
        assert answer.status == Status.UNAVAILABLE
        assert answer.message == b"This protocol is restricted, expecting header 'triton-grpc-protocol-key'"
        assert line.ask(b"x", "/test.Echo/Unary", (b"triton-grpc-protocol-key", b"open")).messages == [b"x"]

    def test_a_restricted_stream_is_not_opened(self) -> None:
        line = self.line()
        number = line.begin("/test.Echo/Kept")
        assert line.answer(number).status == Status.UNAVAILABLE
        assert line.service.streams == []


def test_who_goes_on_sending_to_an_answered_request_is_told_to_stop() -> None:
    line = Line()
    number = line.begin("/test.Echo/Missing")
    assert line.answer(number).reset is None
    line.send(data(number, b"more"))
    assert line.answer(number).reset == ErrorCode.NO_ERROR
    line.send(data(number, b"and more"))
    assert len(line.of_kind(Kind.RST_STREAM)) == 1
    assert line.goaway() is None
