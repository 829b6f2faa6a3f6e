"""The models of docs/how-to, as a reader copies them, and the questions to them, as a reader types them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from asking import Asker, tensor
from model_folders import write_model
from pages import Section, sections, typed
from serving import TensorServer

from benchmarks.ports import free_port

EXAMPLES = {"measure", "words", "polite", "both"}


FOLDER = sections("python-models.md")["The"]
LOOP = sections("python-models.md")["While"]
BY_NAME = {name: section for name, section in sections("python-examples.md").items() if name}
ENSEMBLE = sections("ensembles.md")[""]


def write_shout(repository: Path) -> None:
    (source,) = FOLDER.of("python")
    write_model(repository, "shout", FOLDER.config, model_py=source)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory, plugins: Path) -> Iterator[int]:
    """A server of every model on the pages."""
    folder = tmp_path_factory.mktemp("pages")
    write_shout(folder / "repository")
    for name, section in BY_NAME.items():
        (source,) = section.of("python")
        write_model(folder / "repository", name, section.config, model_py=source)
    write_model(folder / "repository", "loud_length", ENSEMBLE.config)
    with TensorServer(folder / "repository", folder / "server.log", plugins=plugins) as server:
        yield server.port


def at(port: int, section: Section) -> str:
    (command,) = section.of("sh")
    return command.replace("127.0.0.1:8000", f"127.0.0.1:{port}")


def test_the_pages_model_answers_the_pages_question(port: int) -> None:
    assert '"data":["HELLO!"]' in typed(at(port, FOLDER))


def test_no_example_goes_untested() -> None:
    assert set(BY_NAME) == EXAMPLES


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_examples_answer_is_the_printed_one(port: int, name: str) -> None:
    assert typed(at(port, BY_NAME[name])) == BY_NAME[name].printed.strip()


def test_the_ensembles_answer_is_the_printed_one(port: int) -> None:
    assert typed(at(port, ENSEMBLE)) == ENSEMBLE.printed.strip()


def test_the_model_that_asks_hands_its_own_error_on(port: int) -> None:
    Asker(port).post("/v2/models/polite/generate", b'{"TEXT": "tea"}').refused("say please")


def test_infer_sends_those_who_want_a_stream_to_its_route(port: int) -> None:
    answer = Asker(port).infer("words", tensor("TEXT", "BYTES", [1], ["good morning"]))
    assert "gRPC" not in answer.refused("POST its inputs to /v2/models/words/generate_stream", status=501)


def test_a_stream_is_read_by_the_command_too(port: int) -> None:
    out = typed(f"bident run words 'good morning' --url http://127.0.0.1:{port}")
    assert out.splitlines()[:2] == ["good", "morning"]


def test_the_development_loop(tmp_path: Path) -> None:
    write_shout(tmp_path / "model_repository")
    (block,) = LOOP.of("sh")
    up, load, run, logs = (re.sub(r"\s+#.*", "", line) for line in block.splitlines())
    assert logs == "bident logs --follow"
    first = free_port()
    ports = f"export BIDENT_HTTP_PORT={first} BIDENT_GRPC_PORT={free_port()} BIDENT_METRICS_PORT={free_port()}"
    typed(f"{ports}; cd {tmp_path}; {up}")
    try:
        assert "HELLO!" in typed(f"cd {tmp_path}; {run}")
        source = tmp_path / "model_repository" / "shout" / "1" / "model.py"
        source.write_text(source.read_text().replace('b"!"', 'b"?"'))
        assert "HELLO?" in typed(f"cd {tmp_path}; {load} && {run}")
        # What does not load leaves the one before in service, and says why.
        source.write_text("import nosuch\n")
        assert "No module named 'nosuch'" in typed(f"cd {tmp_path}; ! {load} 2>&1 && {run}")
        assert "HELLO?" in typed(f"cd {tmp_path}; {run}")
    finally:
        typed(f"cd {tmp_path}; bident down")
