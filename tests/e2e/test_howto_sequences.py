"""docs/how-to/sequences.md: its models are served as they stand there, and answer what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from asking import Answer, Asker, tensor
from model_folders import floats, onnx_model, write_model
from onnx import helper
from pages import Reader, sections

PAGE = sections("sequences.md")
TOTAL, STATE = PAGE["total"], PAGE["The"]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    made = Reader(tmp_path_factory.mktemp("sequences"))
    model, _ = TOTAL.of("python")
    write_model(made.models, "total", TOTAL.config, model_py=model)
    names = {"VALUE": "TOTAL", "TOTAL_BEFORE": "TOTAL_AFTER"}
    nodes = [helper.make_node("Add", list(names), [output]) for output in names.values()]
    graph = onnx_model(
        [floats(name, ["N", 1]) for name in names], [floats(name, ["N", 1]) for name in names.values()], nodes
    )
    write_model(made.models, "kept", STATE.config, model_onnx=graph)
    flags = "--model-control-mode=explicit --load-model='*'"
    with made.starts(f"bident serve tensor --model-repository models {flags}"):
        yield made
    assert "Traceback" not in made.log_text


@pytest.fixture
def ask(reader: Reader) -> Iterator[Asker]:
    made = Asker(int(reader.address("8000").rpartition(":")[2]))
    yield made
    made.close()


def _step(ask: Asker, model: str, value: int, datatype: str = "INT64", **parameters: Any) -> Answer:
    return ask.infer(model, tensor("VALUE", datatype, [1, 1], [value]), parameters=parameters)


def test_the_commands_print_what_the_page_says(reader: Reader) -> None:
    (commands,) = TOTAL.of("sh")
    assert _lines(reader.types(commands.replace("\ncurl", "\necho; curl"))) == _lines(TOTAL.printed)


def _lines(text: str) -> list[str]:
    return text.strip().splitlines()


def test_the_program_prints_what_the_page_says(reader: Reader) -> None:
    _, program = TOTAL.of("python")
    assert reader.runs(program) == TOTAL.of("")[-1].strip()


def test_the_server_keeps_the_state_of_a_function(ask: Asker) -> None:
    for sequence in (1, 2):
        found = [
            _step(ask, "kept", value, "FP32", sequence_id=sequence, sequence_start=value == 1).data("TOTAL")
            for value in (1, 2, 3)
        ]
        assert found == [[1], [3], [6]]


def test_what_has_not_started_is_refused_in_the_words_of_the_page(ask: Asker) -> None:
    refused = _step(ask, "total", 1, sequence_id=99)
    refused.refused("must specify the START flag on the first request of the sequence")


@pytest.mark.parametrize("model", ["total", "kept"])
def test_a_reload_ends_sequences(reader: Reader, ask: Asker, model: str) -> None:
    datatype = "INT64" if model == "total" else "FP32"
    assert _step(ask, model, 1, datatype, sequence_id=5, sequence_start=True).status == 200
    with (reader.models / model / "config.pbtxt").open("a") as config:
        config.write("# changed\n")
    assert ask.load(model).status == 200
    _step(ask, model, 1, datatype, sequence_id=5).refused("START flag")


def test_commands_ask_a_sequence_of_one_request(reader: Reader) -> None:
    at = "--url http://127.0.0.1:8000"
    printed = reader.types(f"bident run total '[[40]]' --json {at}")
    assert json.loads(printed)["outputs"][0]["data"] == [40]
    assert "asked as a sequence of one request" in reader.types(f"bident run total '[[40]]' {at} 2>&1")
    goes_on = reader.types(
        f"bident run total '[[40]]' --param sequence_id=70 --param sequence_start=true {at} >&2 && "
        f"bident run total '[[2]]' --param sequence_id=70 --json {at}"
    )
    assert json.loads(goes_on)["outputs"][0]["data"] == [42]
    (example,) = re.findall(r"curl .*", reader.types(f"bident show total {at}"))
    assert json.loads(reader.types(example))["outputs"][0]["data"] == [0]
