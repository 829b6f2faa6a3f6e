"""``bident run`` of models that answer a request any number of times."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bident.client import Client
from bident.errors import ServeError
from tests.unit.cli.conftest import Bident, FakeModel, FakeServer, tensor


@pytest.fixture
def words(server: FakeServer) -> FakeServer:
    """A decoupled model that answers with each word of a text."""
    server.models["words"] = FakeModel(
        inputs=[tensor("TEXT", "BYTES", 1)],
        outputs=[tensor("WORD", "BYTES", 1)],
        config={"backend": "python", "model_transaction_policy": {"decoupled": True}},
        answer=lambda tensors: {},
    )
    server.models["numbers"] = FakeModel(
        inputs=[tensor("X", "FP32", -1, 2), tensor("N", "INT32", -1, 1)],
        outputs=[tensor("Y", "FP32", -1, 2), tensor("AT", "INT32", -1, 1)],
        config={"max_batch_size": 4, "model_transaction_policy": {"decoupled": True}},
        answer=lambda tensors: {},
    )
    server.events = [event("words", WORD="good"), event("words", WORD=["bad", "so"])]
    return server


def event(model: str, **outputs: Any) -> dict[str, Any]:
    return {"model_name": model, "model_version": "3", **outputs}


def test_each_answer_is_a_line(bident: Bident, words: FakeServer) -> None:
    result = bident("run", "words", "good bad so", "-p", "delay=2", "--url", words.url)
    assert result.code == 0, result.err
    assert result.out.splitlines()[:2] == ["good", "bad  so"]
    assert result.out.splitlines()[2].startswith("words version 3, 2 answers, ")
    assert words.asked == [{"TEXT": "good bad so", "parameters": {"delay": 2}}]


def test_several_outputs_are_named(bident: Bident, words: FakeServer) -> None:
    words.events = [event("numbers", Y=[0.5, 1.5], AT=0)]
    result = bident("run", "numbers", '{"X": [[1, 2], [3, 4]], "N": [[5], [6]]}', "--url", words.url)
    assert result.out.splitlines()[0] == "Y: 0.5  1.5  AT: 0"
    assert "1 answer, " in result.out
    assert words.asked == [{"X": [1, 2, 3, 4], "N": [5, 6]}]


def test_json_prints_the_events(bident: Bident, words: FakeServer) -> None:
    result = bident("run", "words", "good bad", "--json", "--url", words.url)
    assert [json.loads(line) for line in result.out.splitlines()] == words.events


def test_a_whole_request_is_turned_into_values(bident: Bident, words: FakeServer) -> None:
    entries = [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a b"]}]
    body = json.dumps({"inputs": entries, "parameters": {"delay": 1}})
    assert bident("run", "words", body, "--url", words.url).code == 0
    assert words.asked == [{"TEXT": "a b", "parameters": {"delay": 1}}]
    del entries[0]["data"]
    bad = bident("run", "words", json.dumps({"inputs": entries}), "--url", words.url)
    assert "no 'data' that fills its 'shape'" in bad.err


def test_an_error_that_comes_later_is_the_end(bident: Bident, words: FakeServer) -> None:
    words.events.append({"error": "out of words"})
    result = bident("run", "words", "good bad", "--url", words.url)
    assert result.code == 1
    assert result.out.splitlines() == ["good", "bad  so"]
    assert result.err == "bident: out of words\n"


def test_what_generate_cannot_carry_is_said_with_the_url(bident: Bident, words: FakeServer) -> None:
    words.models["words"].inputs = [tensor("TEXT", "BYTES", -1, -1)]
    result = bident("run", "words", '[["a"], ["b"]]', "--url", words.url)
    assert result.code == 1
    assert (
        f"is asked at {words.url}/v2/models/words/generate_stream, where an input is one value or a flat" in result.err
    )
    assert "'TEXT' BYTES [-1, -1] has shape [2, 1], and would be read as [1, 2]" in result.err
    assert words.asked == []


def test_ctrl_c_is_no_failure(bident: Bident, words: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Any:
        yield event("words", WORD="good")
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "events", interrupted)
    result = bident("run", "words", "good bad", "--url", words.url)
    assert (result.code, result.out, result.err) == (130, "good\n", "stopped after 1 answer\n")


def test_boxes_of_many_answers_are_not_drawn(bident: Bident, words: FakeServer) -> None:
    assert "is decoupled: it gives many" in bident("run", "words", "a b", "--save", "x.png", "--url", words.url).err


def test_show_tells_the_route_that_answers(bident: Bident, words: FakeServer) -> None:
    out = bident("show", "words", "--url", words.url).out
    assert f'curl -N {words.url}/v2/models/words/generate_stream -d \'{{"TEXT": ""}}\'' in out


def test_what_is_no_stream_is_an_error(bident: Bident, words: FakeServer) -> None:
    with pytest.raises(ServeError, match="unknown model: 'gone'"):
        list(Client(words.url).events("/v2/models/gone/generate_stream", {}))
    with pytest.raises(ServeError, match="something that is not the v2 protocol"):
        list(Client(words.url).events("/v2/models/words", {}))
    with pytest.raises(ServeError, match="no server answers at"):
        list(Client("http://127.0.0.1:9").events("/v2/models/words/generate_stream", {}))
