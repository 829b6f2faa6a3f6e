"""``bident pull``, ``push``, ``create``, ``cp``, ``rm`` and ``stop``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Bident, Result
from tests.unit.cli.fake_ollama import FakeOllama


@pytest.fixture
def do(bident: Bident, ollama: FakeOllama) -> Callable[..., Result]:
    return lambda *words: bident(*words, "--text-url", ollama.url)


def test_pull_and_push(do: Callable[..., Result], ollama: FakeOllama) -> None:
    layer = {"status": "pulling abc", "digest": "sha256:abc", "total": 100}
    ollama.statuses = [{"status": "pulling manifest"}, layer, {**layer, "completed": 100}, {"status": "success"}]
    assert do("pull", "smollm2", "minilm").out == "Pulled smollm2.\nPulled minilm.\n"
    assert do("pull", "hf:a/b", "--as", "mine").out == "Pulled mine.\n"
    assert do("push", "r.example/a/b").code == 0
    assert ollama.bodies("/api/pull") == [
        {"model": "smollm2", "insecure": False},
        {"model": "minilm", "insecure": False},
        {"model": "mine", "from": "hf:a/b", "insecure": False},
    ]
    assert do("pull", "a", "b", "--as", "c").code == 2


def test_what_goes_wrong_on_the_way_is_the_error(do: Callable[..., Result], ollama: FakeOllama) -> None:
    ollama.statuses = [{"status": "pulling manifest"}, {"error": "pull model manifest: file does not exist"}]
    result = do("pull", "gone")
    assert (result.code, result.out) == (1, "")
    assert result.err.endswith("bident: pull model manifest: file does not exist\n")


def test_a_file_here_is_sent(do: Callable[..., Result], ollama: FakeOllama) -> None:
    Path("tiny.gguf").write_bytes(b"GGUF")
    digest = f"sha256:{hashlib.sha256(b'GGUF').hexdigest()}"
    assert do("pull", "tiny.gguf").out == "Pulled tiny.\n"
    assert ollama.blobs == {digest: b"GGUF"}
    assert do("pull", "tiny.gguf", "--as", "again").code == 0
    assert [body["files"] for body in ollama.bodies("/api/create")] == [{"tiny.gguf": digest}] * 2


def test_create_by_a_modelfile(do: Callable[..., Result], ollama: FakeOllama) -> None:
    Path("Modelfile").write_text('FROM smollm2\nPARAMETER temperature 0\nSYSTEM """Be\nbrief."""\n', encoding="utf-8")
    assert do("create", "brief").code == 0
    Path("sub").mkdir()
    Path("sub", "w.gguf").write_bytes(b"GGUF")
    Path("sub", "m").write_text("FROM ./w.gguf\n", encoding="utf-8")
    assert do("create", "own", "-f", "sub/m").code == 0
    first, second = ollama.bodies("/api/create")
    assert first == {"model": "brief", "from": "smollm2", "parameters": {"temperature": 0}, "system": "Be\nbrief."}
    assert list(second["files"]) == ["w.gguf"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PARAMETER seed 1\n", "Modelfile: no FROM line"),
        ("FROM x\nNONSENSE 1\n", "Modelfile: line 2:"),
        ("FROM x\nADAPTER gone.gguf\n", "there is no file gone.gguf"),
        (None, "there is no Modelfile; write one that begins with FROM smollm2"),
    ],
)
def test_a_modelfile_that_cannot_be_used(do: Callable[..., Result], text: str | None, message: str) -> None:
    if text is not None:
        Path("Modelfile").write_text(text, encoding="utf-8")
    result = do("create", "x")
    assert result.code == 1
    assert message in result.err


def test_cp_rm_stop(do: Callable[..., Result], ollama: FakeOllama) -> None:
    ollama.loaded = [{"name": "a:latest"}]
    assert do("cp", "a", "b").code == 0
    assert do("rm", "a", "b").out == "Removed a.\nRemoved b.\n"
    assert do("stop", "a", "b").out == "Stopped a.\nNot loaded: b.\n"
    assert ollama.bodies("/api/copy") == [{"source": "a", "destination": "b"}]
    assert ollama.bodies("/api/delete") == [{"model": "a"}, {"model": "b"}]
    assert ollama.bodies("/api/generate")[0] == {"model": "a", "keep_alive": 0, "stream": False}
