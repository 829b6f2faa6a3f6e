"""How long a connection lasts: keepalive, stalled clients, age, drain."""

from __future__ import annotations

import pytest
from grpc_line import Line, LineServer, data, headers, prefixed, settings

from bident.doors.grpc import frames
from bident.doors.grpc.call import Status
from bident.doors.grpc.frames import END_STREAM, LARGEST_WINDOW, PREFACE, ErrorCode, Kind, frame
from bident.doors.grpc.limits import GrpcLimits, Keepalive


def pings(line: Line) -> int:
    return sum(not ping.flags & frames.ACK for ping in line.of_kind(Kind.PING))


def with_rules(**rules: float) -> Line:
    return Line(limits=GrpcLimits(keepalive=Keepalive(**rules)))  # type: ignore[arg-type]


class TestBeginning:
    @pytest.mark.parametrize("sent", [b"", PREFACE[:10], PREFACE])
    def test_a_connection_that_does_not_begin_is_ended(self, sent: bytes) -> None:
        line = Line(hello=False)
        line.send(sent)
        line.server.wait(30)
        assert line.goaway() is None
        line.server.wait(2)
        assert line.goaway() == ErrorCode.SETTINGS_TIMEOUT
        assert line.is_ended
        line.server.wait(3)
        assert line.transport.aborted

    def test_an_idle_connection_may_stay(self) -> None:
        line = Line()
        line.server.wait(7000)
        assert not line.is_ended
        assert line.ask().messages == [b"hello"]


class TestStalling:
    def test_a_request_that_does_not_go_on(self) -> None:
        line = Line()
        number = line.begin()
        line.send(data(number, prefixed(b"hello")[:7]))
        line.server.wait(30)
        line.send(data(number, b"e"))
        line.server.wait(30)
        assert line.answer(number).head == {}
        line.server.wait(3)
        assert line.answer(number).status == Status.CANCELLED
        assert line.server.held.size == 0
        assert line.ask().messages == [b"hello"]

    def test_a_call_that_waits_for_us_may_wait(self) -> None:
        line = Line()
        line.ask(b"x", "/test.Echo/Later")
        line.server.wait(3000)
        line.service.later[0].reply(b"at last")
        assert line.answer(1).messages == [b"at last"]

    def test_a_stream_on_which_nothing_happens_may_stay(self) -> None:
        line = Line()
        number = line.begin("/test.Echo/Stream")
        line.server.wait(3000)
        line.send(data(number, prefixed(b"x"), END_STREAM))
        assert line.answer(number).messages == [b"x"]

    def test_a_stream_in_the_middle_of_a_message_may_not(self) -> None:
        line = Line()
        number = line.begin("/test.Echo/Stream")
        line.send(data(number, b"\0\0\0"))
        line.server.wait(40)
        assert line.answer(number).status == Status.CANCELLED

    def test_bytes_that_nobody_reads(self) -> None:
        line = Line()
        line.transport.stuck = 1000
        line.server.wait(40)
        line.transport.stuck = 900
        line.server.wait(50)
        assert not line.transport.aborted
        line.server.wait(20)
        assert line.transport.aborted

    def test_windows_that_stay_closed(self) -> None:
        line = Line()
        line.send(settings(initial_window_size=0))
        line.ask()
        line.server.wait(290)
        line.send(frames.window_update(1, 1))
        line.server.wait(290)
        assert not line.is_ended
        line.server.wait(20)
        assert line.goaway() == ErrorCode.ENHANCE_YOUR_CALM
        assert line.server.held.size == 0


class TestKeepalive:
    def test_a_silent_client_is_asked_and_cut_if_it_does_not_answer(self) -> None:
        line = with_rules(time=10, timeout=5)
        line.ask(b"x", "/test.Echo/Later")
        line.server.wait(10)
        assert pings(line) == 1
        line.server.wait(4)
        assert not line.transport.aborted
        line.server.wait(2)
        assert line.transport.aborted

    def test_one_that_answers_stays_and_is_not_asked_for_ever(self) -> None:
        line = with_rules(time=10, timeout=5, max_pings_without_data=2)
        line.ask(b"x", "/test.Echo/Later")
        answered = 0
        for _ in range(100):
            line.server.wait(1)
            if pings(line) > answered:
                answered += 1
                line.connection.data_received(frame(Kind.PING, frames.ACK, 0, b"\0bident\0"))
        assert answered == 2
        assert not line.is_ended

    def test_a_client_without_calls_is_asked_only_if_that_is_permitted(self) -> None:
        line = with_rules(time=10, timeout=5)
        line.server.wait(100)
        assert pings(line) == 0
        line = with_rules(time=10, timeout=5, permit_without_calls=True)
        line.server.wait(10)
        assert pings(line) == 1

    def test_a_client_that_asks_too_often_is_sent_away(self) -> None:
        line = Line()
        line.ask(b"x", "/test.Echo/Later")
        for _ in range(3):
            line.send(frame(Kind.PING, 0, 0, bytes(8)))
            assert line.goaway() is None
        line.send(frame(Kind.PING, 0, 0, bytes(8)))
        assert line.goaway() == ErrorCode.ENHANCE_YOUR_CALM
        assert line.of_kind(Kind.GOAWAY)[0].payload[8:] == b"too_many_pings"

    def test_answers_in_between_allow_more(self) -> None:
        line = Line()
        for _ in range(50):
            line.send(frame(Kind.PING, 0, 0, bytes(8)))
            line.ask()
        assert line.goaway() is None

    def test_any_number_of_strikes_may_be_allowed(self) -> None:
        line = with_rules(max_ping_strikes=0)
        for _ in range(100):
            line.send(frame(Kind.PING, 0, 0, bytes(8)))
        assert line.goaway() is None


class TestLeaving:
    def goaways(self, line: Line) -> list[tuple[int, ErrorCode]]:
        return [(frames.number(sent.payload), sent.code) for sent in line.of_kind(Kind.GOAWAY)]

    def test_a_drain_takes_two_steps_and_answers_what_has_begun(self) -> None:
        line = Line()
        line.ask(b"x", "/test.Echo/Later")
        line.server.is_draining = True
        assert self.goaways(line) == [(LARGEST_WINDOW, ErrorCode.NO_ERROR)]
        assert line.ask(b"on its way").messages == [b"on its way"]
        (asked,) = [ping for ping in line.of_kind(Kind.PING) if not ping.flags]
        line.send(frame(Kind.PING, frames.ACK, 0, asked.payload))
        assert self.goaways(line)[1:] == [(3, ErrorCode.NO_ERROR)]
        line.send(headers(5), data(5, prefixed(b"too late"), END_STREAM))
        assert line.answer(5).reset == ErrorCode.REFUSED_STREAM
        assert line.server.owes_answers
        line.service.later[0].reply(b"done")
        assert line.answer(1).messages == [b"done"]
        assert not line.server.owes_answers
        assert line.is_ended

    def test_a_client_that_does_not_answer_the_ping_is_left_all_the_same(self) -> None:
        line = Line()
        line.server.is_draining = True
        line.server.wait(7)
        assert self.goaways(line)[1:] == [(0, ErrorCode.NO_ERROR)]
        assert line.is_ended

    def test_who_comes_during_the_drain_is_told_too(self) -> None:
        server = LineServer()
        server.is_draining = True
        assert self.goaways(Line(server)) == [(LARGEST_WINDOW, ErrorCode.NO_ERROR)]

    def test_an_open_stream_alone_owes_nothing(self) -> None:
        line = Line()
        line.begin("/test.Echo/Kept")
        assert not line.server.owes_answers
        line.ask(b"x", "/test.Echo/Later")
        assert line.server.owes_answers

    def test_old_connections_are_sent_away_and_cut_after_their_grace(self) -> None:
        line = with_rules(max_connection_age=100, max_connection_age_grace=10)
        line.ask(b"x", "/test.Echo/Later")
        line.server.wait(99)
        assert self.goaways(line) == []
        line.server.wait(3)
        assert line.of_kind(Kind.GOAWAY)[0].payload[8:] == b"max_age"
        line.server.wait(8)
        assert not line.transport.aborted
        line.server.wait(4)
        assert line.transport.aborted

    def test_a_client_that_leaves_gets_its_answers_and_is_let_go(self) -> None:
        line = Line()
        line.ask(b"x", "/test.Echo/Later")
        line.send(frame(Kind.GOAWAY, 0, 0, bytes(8)))
        line.server.wait(2)
        assert not line.is_ended
        line.service.later[0].reply(b"bye")
        assert line.answer(1).messages == [b"bye"]
        line.server.wait(2)
        assert line.is_ended

    def test_a_client_that_closes_its_side_has_gone(self) -> None:
        line = Line()
        line.ask(b"x", "/test.Echo/Later")
        assert not line.connection.eof_received()
