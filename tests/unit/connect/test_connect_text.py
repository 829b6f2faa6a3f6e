"""Neighbours that ask text models as they ask Ollama's, and Milvus."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bident.connect.continue_dev import Continue
from bident.connect.langchain import LangChain
from bident.connect.milvus import Milvus
from bident.connect.neighbour import Neighbour, Wanted
from bident.connect.openwebui import OpenWebUi
from bident.connect.site import Address, Site, TextModel
from bident.errors import ServeError
from tests.unit.connect.sites import MINILM, NOBODY, SMOLLM2, answering, site

SPEAKS = {
    "/api/version": {"version": "0.14.0"},
    "/api/chat": {"message": {"content": "Hello."}},
    "/api/embed": {"embeddings": [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]},
}
ASKING = (OpenWebUi(), Continue(), LangChain())
PYMILVUS = """
__version__ = "3.0"
class MilvusClient:
    def __init__(self, uri, token, timeout):
        if "refuses" in uri:
            raise ValueError("connection\\nrefused")
    def create_collection(self, name, dimension, metric_type, consistency_level):
        assert dimension == 2
    def insert(self, name, rows):
        self.rows = rows
    def search(self, name, data, limit):
        found = range(len(data)) if not {lost} else [2] * len(data)
        return [[{{"id": place}}] for place in found]
    def drop_collection(self, name):
        pass
"""
"""As much of the client as the probe asks."""


def variables(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))


def only_file(neighbour: Neighbour, site: Site, wanted: Wanted | None = None) -> str:
    (file,) = neighbour.files(site, wanted or Wanted())
    return file.text


def test_openwebui() -> None:
    told = variables(only_file(OpenWebUi(), site(host="host.docker.internal")))
    assert told["OLLAMA_BASE_URL"] == told["RAG_OLLAMA_BASE_URL"] == "http://host.docker.internal:9"
    assert (told["DEFAULT_MODELS"], told["RAG_EMBEDDING_MODEL"]) == ("smollm2:latest", "minilm:latest")
    assert "RAG_EMBEDDING_ENGINE" not in variables(only_file(OpenWebUi(), site(text_models=(SMOLLM2,))))


def test_openwebui_by_openais_api() -> None:
    told = variables(only_file(OpenWebUi(), site(), Wanted(options={"api": "openai"})))
    assert told["OPENAI_API_BASE_URL"] == told["RAG_OPENAI_API_BASE_URL"] == "http://127.0.0.1:9/v1"
    assert told["ENABLE_OLLAMA_API"] == "False"
    with pytest.raises(ServeError, match="it is ollama or openai"):
        only_file(OpenWebUi(), site(), Wanted(options={"api": "grpc"}))


def test_continue() -> None:
    coder = TextModel("coder:7b", frozenset({"completion", "insert", "tools", "vision"}), 4096)
    config = yaml.safe_load(only_file(Continue(), site(text_models=(MINILM, coder))))
    assert {"name", "version", "schema"} <= set(config)
    by_name = {model["name"]: model for model in config["models"]}
    assert by_name["minilm"]["roles"] == ["embed"]
    assert by_name["coder:7b"]["roles"] == ["chat", "edit", "apply", "autocomplete"]
    assert by_name["coder:7b"]["capabilities"] == ["tool_use", "image_input"]
    assert by_name["coder:7b"]["apiBase"] == "http://127.0.0.1:9"
    chosen = yaml.safe_load(only_file(Continue(), site(), Wanted(("minilm:latest",))))
    assert [model["model"] for model in chosen["models"]] == ["minilm:latest"]


@pytest.mark.parametrize("models", [(SMOLLM2, MINILM), (SMOLLM2,), (MINILM,)], ids=["both", "chat", "embeddings"])
def test_langchain(models: tuple[TextModel, ...]) -> None:
    program = only_file(LangChain(), site(text_models=models))
    imported = next(node for node in ast.parse(program).body if isinstance(node, ast.ImportFrom))
    assert len(imported.names) == len(models)


@pytest.mark.parametrize("neighbour", [*ASKING, Milvus()], ids=lambda each: each.name)
def test_without_models_or_server(neighbour: Neighbour) -> None:
    with pytest.raises(ServeError, match="bident pull"):
        neighbour.files(site(text_models=()), Wanted())
    with pytest.raises(ServeError, match=r"the text server does not answer|no text model"):
        neighbour.files(site("iris", text=None), Wanted())
    for nothing in (site(text_models=()), site("iris", text=None)):
        (hop,) = neighbour.check(nothing, Wanted())
        assert not hop.works


@pytest.mark.parametrize("neighbour", ASKING, ids=lambda each: each.name)
def test_a_tensor_model_is_no_text_model(neighbour: Neighbour) -> None:
    with pytest.raises(ServeError, match=r"no text model is among 'iris'; there is smollm2:latest, minilm:latest"):
        neighbour.files(site("iris"), Wanted(("iris",)))


@pytest.mark.parametrize("neighbour", ASKING, ids=lambda each: each.name)
def test_the_way_is_tried(neighbour: Neighbour) -> None:
    with answering(SPEAKS) as url:
        hops = list(neighbour.check(site(text=url), Wanted()))
    assert [hop.works for hop in hops] == [True] * 3
    assert "'Hello.'" in hops[1].seen
    assert "vectors of 2 numbers" in hops[2].seen


def test_a_model_that_does_not_answer() -> None:
    with answering({**SPEAKS, "/api/chat": {"no": "message"}}) as url:
        hops = list(LangChain().check(site(text=url), Wanted()))
    assert [hop.works for hop in hops] == [True, False]
    assert hops[1].name == "text server -> smollm2:latest"


def test_the_name_there_is_tried_where_it_means_something_here() -> None:
    with answering(SPEAKS) as url:
        for theirs, works, seen in (
            (url.replace("127.0.0.1", "localhost"), True, "answers at"),
            (NOBODY, False, "nothing answers at"),
            ("http://no-such-name.invalid:1", True, "not tried"),
        ):
            there = Site(None, None, Address(url, theirs), text_models=(SMOLLM2,))
            hop = list(LangChain().check(there, Wanted()))[1]
            assert hop.works is works
            assert seen in hop.seen


def test_openwebui_itself() -> None:
    def last(url: str, text: str) -> Any:
        hop = list(OpenWebUi().check(site(text=text), Wanted(options={"openwebui": url})))[-1]
        return hop.works, hop.seen

    with answering(SPEAKS) as text, answering({"/api/version": {"version": "0.9"}}) as page, answering({}) as other:
        assert last(page, text) == (True, f"Open WebUI 0.9 answers at {page}")
        assert last(other, text)[0] is False
        assert last(NOBODY, text)[0] is False


def test_milvus_variables() -> None:
    with answering(SPEAKS) as url:
        (file,) = Milvus().files(site(text=url), Wanted(options={"milvus": "my file.db"}))
    told = variables(file.text)
    assert (told["RAG_EMBEDDER"], told["RAG_ANSWERER"], told["BIDENT_TEXT_URL"]) == (
        "minilm:latest",
        "smollm2:latest",
        url,
    )
    assert told["RAG_MILVUS"] == "'my file.db'"
    assert "have 2 numbers" in file.text


def milvus_hops(tmp_path: Path, client: str | None, uri: str = "x.db") -> list[tuple[bool, str]]:
    """The hops with a Python that has ``client`` for pymilvus."""
    python = tmp_path / "python"
    if client is not None:
        (tmp_path / "pymilvus.py").write_text(client, encoding="utf-8")
    run = f"import runpy, sys; sys.path.insert(0, {str(tmp_path)!r}); runpy.run_path(sys.argv[1], run_name='__main__')"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{run}" "$2"\n', encoding="utf-8")
    python.chmod(0o755)
    with answering(SPEAKS) as url:
        wanted = Wanted(options={"python": str(python), "milvus": uri})
        return [(hop.works, hop.seen) for hop in Milvus().check(site(text=url), wanted)]


@pytest.mark.skipif(sys.platform == "win32", reason="the Python in this test is a shell script")
def test_milvus_is_tried(tmp_path: Path) -> None:
    assert [works for works, _ in milvus_hops(tmp_path, None)] == [True, False]
    hops = milvus_hops(tmp_path, PYMILVUS.format(lost=False))
    assert [works for works, _ in hops] == [True] * 3
    assert "vectors of 2 numbers" in hops[0][1]
    assert milvus_hops(tmp_path, PYMILVUS.format(lost=True))[-1] == (
        False,
        "x.db: searching for vectors 0, 1, 2 found [2, 2, 2]",
    )
    refused = milvus_hops(tmp_path, PYMILVUS.format(lost=False), "http://refuses")
    assert refused[-1] == (False, "http://refuses: ValueError: connection refused")
    assert milvus_hops(tmp_path, "raise SystemExit(3)")[-1][0] is False
    missing = Wanted(options={"python": str(tmp_path / "nowhere")})
    with answering(SPEAKS) as url:
        assert [hop.works for hop in Milvus().check(site(text=url), missing)] == [True, False]
