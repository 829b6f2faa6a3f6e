"""What the generate routes make of a model's answers."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import numpy as np
import pytest
from generate_house import DECOUPLED, Stage, broke, events, talk
from http_line import Answer, post

from bident.errors import Code, ServeError
from bident.wire.datatypes import DATATYPES
from bident.wire.infer import Column, InferRequest, InferResponse, Outcome
from tests.unit.engine.engine_fakes import until

ROUTES = ("generate", "generate_stream")
NOT_ONE = "generate expects model to produce exactly 1 response, use generate stream for model that generates"


class TestStream:
    def test_each_response_is_an_event_as_it_comes(self) -> None:
        stage = Stage()
        stage.ask({"PLAN": "x", "id": "r1"})
        assert stage.line.transport.written == b""
        for number in range(1, 4):
            assert stage.reply(numbers=[number / 2]) is Outcome.ANSWERED
            (answer,) = stage.answers
            assert len(events(answer)) == number
            assert not answer.ended
        stage.reply(final=True)
        (answer,) = stage.answers
        assert answer.status == 200
        assert answer.ended
        assert answer.chunks is not None
        assert len(answer.chunks) == 3
        assert events(answer)[0] == {"NUMBERS": 0.5, "id": "r1", "model_name": "talk", "model_version": "1"}
        assert not stage.line.is_closed

    def test_the_last_response_may_carry_data(self) -> None:
        stage = Stage()
        stage.ask()
        stage.reply(numbers=[1])
        stage.reply(numbers=[2], final=True)
        (answer,) = stage.answers
        assert [event["NUMBERS"] for event in events(answer)] == [1, 2]
        assert answer.ended

    def test_no_response_is_an_empty_answer(self) -> None:
        stage = Stage()
        stage.ask()
        stage.reply(final=True)
        (answer,) = stage.answers
        assert (answer.status, events(answer), answer.ended) == (200, [], True)

    def test_an_error_after_the_first_is_an_event(self) -> None:
        stage = Stage()
        stage.ask()
        stage.reply(numbers=[1])
        stage.reply(error=broke())
        stage.reply(numbers=[2])
        stage.reply(error=broke("again"), final=True)
        (answer,) = stage.answers
        assert answer.status == 200
        assert [event.get("error", event.get("NUMBERS")) for event in events(answer)] == [1, "broke", 2, "again"]
        assert answer.ended

    @pytest.mark.parametrize("code", list(Code))
    def test_an_error_that_comes_first_decides_the_status(self, code: Code) -> None:
        stage = Stage()
        stage.ask()
        stage.reply(error=ServeError(code, "broke"), final=True)
        (answer,) = stage.answers
        assert answer.status == {"NOT_FOUND": 404, "INTERNAL": 500, "UNAVAILABLE": 503, "UNSUPPORTED": 501}.get(
            code.name, 400
        )
        assert events(answer) == [{"error": "broke"}]

    def test_http_1_0(self) -> None:
        stage = Stage()
        stage.ask(version="1.0")
        stage.reply(numbers=[1])
        stage.reply(numbers=[2], final=True)
        (answer,) = stage.answers
        assert [event["NUMBERS"] for event in events(answer)] == [1, 2]
        assert answer.chunks is None
        assert stage.line.is_closed

    def test_other_models_have_one_event(self) -> None:
        stage = Stage(talk(""))
        stage.ask()
        stage.reply(numbers=[1], final=True)
        (answer,) = stage.answers
        assert (len(events(answer)), answer.ended) == (1, True)

    def test_two_streams_on_one_connection_keep_their_order(self) -> None:
        stage = Stage()
        stage.ask()
        stage.ask()
        first, second = stage.servable.requests
        stage.reply(numbers=[2])
        stage.reply(final=True)
        assert stage.answers == []
        first.reply(InferResponse("talk", "1", "", [], 0, -1))
        assert [events(answer) == [] for answer in stage.answers] == [True, False]
        assert second is not first

    def test_what_cannot_be_written_is_an_event_and_a_failure(self) -> None:
        stage = Stage()
        stage.ask()
        stage.reply(numbers=[1])
        assert stage.reply(text=[b"\xff"]) is Outcome.FAILED
        assert stage.reply(final=True) is Outcome.FAILED
        (answer,) = stage.answers
        assert "not UTF-8" in events(answer)[1]["error"]

    def test_a_fault_of_ours_is_an_event_without_its_details(self, caplog: pytest.LogCaptureFixture) -> None:
        stage = Stage()
        stage.ask()
        assert stage.reply(parameters={"no": object()}, numbers=[1], final=True) is Outcome.FAILED
        (answer,) = stage.answers
        assert answer.status == 500
        assert events(answer) == [{"error": "the answer of model 'talk' could not be written; see the log"}]
        assert "could not be written" in caplog.text


class TestOneAnswer:
    @pytest.mark.parametrize(("text", "separate_end"), [("", False), (DECOUPLED, False), (DECOUPLED, True)])
    def test_one_response(self, text: str, separate_end: bool) -> None:
        stage = Stage(talk(text))
        stage.ask(route="generate")
        assert stage.reply(numbers=[1, 2], final=not separate_end) is Outcome.ANSWERED
        if separate_end:
            assert stage.answers == []
            stage.reply(final=True)
        (answer,) = stage.answers
        assert (answer.status, answer.chunks) == (200, None)
        assert answer.headers[b"content-type"] == b"application/json"
        assert json.loads(answer.body) == {"NUMBERS": [1, 2], "model_name": "talk", "model_version": "1"}

    def test_none(self) -> None:
        stage = Stage()
        stage.ask(route="generate")
        stage.reply(final=True)
        assert stage.refusal[0] == 500
        assert stage.refusal[1].startswith(NOT_ONE)

    def test_two_are_refused_at_once_and_the_model_is_stopped(self) -> None:
        stage = Stage()
        stage.ask(route="generate")
        stage.reply(numbers=[1])
        assert stage.engine.cancelled == []
        stage.reply(numbers=[2])
        assert stage.refusal[0] == 500
        assert stage.refusal[1].startswith(NOT_ONE)
        assert stage.engine.cancelled == [stage.request]
        for final in (False, False, True):
            assert stage.reply(numbers=[3], final=final) is Outcome.ANSWERED
        assert len(stage.answers) == 1

    def test_two_that_come_at_once(self) -> None:
        def play(request: InferRequest) -> None:
            for final in (False, True):
                answer = InferResponse("talk", "1", "", [Column("NUMBERS", DATATYPES["FP32"], np.zeros(1))], 0, -1)
                answer.final = final
                request.reply(answer)

        stage = Stage(play=play)
        stage.ask(route="generate")
        assert stage.refusal[1].startswith(NOT_ONE)

    def test_an_error_is_one_response(self) -> None:
        stage = Stage()
        stage.ask(route="generate")
        stage.reply(error=ServeError(Code.UNAVAILABLE, "broke"))
        assert stage.answers == []
        stage.reply(final=True)
        assert stage.refusal == (503, "broke")

    def test_an_answer_without_outputs(self) -> None:
        stage = Stage(talk(""))
        stage.ask(route="generate")
        stage.reply(final=True)
        assert json.loads(stage.answers[0].body) == {"model_name": "talk", "model_version": "1"}

    def test_parameters_alone_are_a_response(self) -> None:
        stage = Stage()
        stage.ask(route="generate")
        stage.reply(parameters={"n": 1}, final=True)
        assert json.loads(stage.answers[0].body)["n"] == 1

    def test_what_cannot_be_written(self) -> None:
        stage = Stage()
        stage.ask(route="generate")
        stage.reply(text=[b"\xff"])
        assert stage.reply(final=True) is Outcome.FAILED
        assert "not UTF-8" in stage.refusal[1]

    def test_many_strings_are_written_by_a_thread(self) -> None:
        settled: list[bool] = []

        async def run() -> None:
            stage = Stage(talk(""))
            stage.ask(route="generate")
            columns = [Column("TEXT", DATATYPES["BYTES"], np.array([b"a"] * 20_000, object))]
            answer = InferResponse("talk", "1", "", columns, 0, -1)
            assert stage.request.reply(answer) is Outcome.LATER
            answer.settled = settled.append
            await until(lambda: stage.answers)
            assert json.loads(stage.answers[0].body)["TEXT"] == ["a"] * 20_000

        asyncio.run(run())
        assert settled == [True]


class TestAnswer:
    def answered(self, **members: Any) -> bytes:
        stage = Stage()
        stage.ask({"PLAN": "x", "id": "r1"}, route="generate")
        stage.reply(final=True, **members)
        return stage.answers[0].body

    def test_keys_are_sorted_by_their_bytes(self) -> None:
        body = self.answered(numbers=[1], text=[b"a"], parameters={"a": 1, "Z": 2.5, "\u00e9": True, "_": "s"})
        names = ["NUMBERS", "TEXT", "Z", "_", "a", "id", "model_name", "model_version", "\u00e9"]
        assert list(json.loads(body)) == names
        assert json.loads(body)["Z"] == 2.5

    def test_the_models_name_wins_over_parameters_and_these_over_outputs(self) -> None:
        document = json.loads(self.answered(numbers=[1], parameters={"id": "p", "model_name": 5, "NUMBERS": 7}))
        assert document == {"NUMBERS": 7, "id": "r1", "model_name": "talk", "model_version": "1"}

    def test_one_element_is_a_value_and_none_an_empty_array(self) -> None:
        assert json.loads(self.answered(numbers=[], text=[b"a"]))["NUMBERS"] == []
        assert json.loads(self.answered(numbers=[1], text=[b"a"]))["TEXT"] == "a"

    def test_numbers_are_the_shortest_that_read_back_and_nan_is_null(self) -> None:
        assert b'"NUMBERS":[0.1,null,null]' in self.answered(numbers=[0.1, math.nan, math.inf])

    @pytest.mark.parametrize("word", ["FP16", "BF16"])
    def test_half_precision(self, word: str) -> None:
        stage = Stage()
        stage.ask(route="generate")
        columns = [Column("NUMBERS", DATATYPES[word], np.array([0.5], DATATYPES[word].numpy))]
        stage.request.reply(InferResponse("talk", "1", "", columns, 0, -1))
        assert json.loads(stage.answers[0].body)["NUMBERS"] == 0.5

    def test_rows_of_a_batch(self) -> None:
        stage = Stage(talk(""))
        stage.ask(route="generate")
        columns = [Column("NUMBERS", DATATYPES["FP32"], np.arange(6, dtype=np.float32).reshape(3, 2))]
        stage.request.reply(InferResponse("talk", "1", "", columns, 1, 2))
        assert json.loads(stage.answers[0].body)["NUMBERS"] == [2, 3]


class TestClientGone:
    @pytest.mark.parametrize("route", ROUTES)
    def test_the_request_is_cancelled(self, route: str) -> None:
        stage = Stage()
        stage.ask(route=route)
        stage.reply(numbers=[1])
        sent = stage.line.transport.written
        stage.line.connection.connection_lost(None)
        assert stage.engine.cancelled == [stage.request]
        assert stage.reply(numbers=[2]) is Outcome.ANSWERED
        assert stage.reply(final=True) is Outcome.ANSWERED
        assert stage.line.transport.written == sent

    @pytest.mark.parametrize("route", ROUTES)
    def test_not_after_the_end(self, route: str) -> None:
        stage = Stage()
        stage.ask(route=route)
        stage.reply(numbers=[1], final=True)
        stage.line.connection.connection_lost(None)
        assert stage.engine.cancelled == []


class TestWholeEngine:
    def ask(self, door: Any, model: str, document: Any) -> Answer:
        return door.ask(post(f"/v2/models/{model}/generate", json.dumps(document).encode()))

    def test_a_value_there_and_back(self, door: Any) -> None:
        answer = self.ask(door, "fp32", {"X": [1.5, 0.1], "id": "r1"})
        assert answer.status == 200
        assert answer.body == b'{"Y":[1.5,0.1],"id":"r1","model_name":"fp32","model_version":"1"}'

    def test_figures(self, door: Any) -> None:
        stats = door.engine.servable("bytes", "").stats
        success, fail = stats.success.count, stats.fail.count
        assert self.ask(door, "bytes", {"X": "a"}).status == 200
        assert self.ask(door, "bytes", {"X": 5}).status == 400
        assert (stats.success.count, stats.fail.count) == (success + 1, fail)

    def test_a_value_out_of_range(self, door: Any) -> None:
        answer = self.ask(door, "uint8", {"X": 256})
        assert answer.status == 400
        assert b"out of range for UINT8" in answer.body
