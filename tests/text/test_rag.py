"""examples/rag as docs/how-to/rag.md has it: files in, answers with sources out, over Milvus Lite and a Milvus."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from text_serving import TextServing

from benchmarks.ports import free_port
from benchmarks.servers import Server
from tests.shell import blocks, made, own_environment, printed, scripts, typed

# Installing takes a minute.
pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "rag.md"
_DEADLINE_SECONDS = 60.0

Type = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def milvus() -> Path:
    return made("milvus")


@pytest.fixture
def types(milvus: Path, serving: TextServing, tmp_path: Path) -> Type:
    """Runs a command in a folder that looks like this repository."""
    for name in ("examples", ".venvs"):
        (tmp_path / name).symlink_to(ROOT / name)
    environment = own_environment(BIDENT_TEXT_URL=serving.url, PYTHONDONTWRITEBYTECODE="1")

    def type_it(command: str, **more: str) -> subprocess.CompletedProcess[str]:
        return typed(command, tmp_path, {**environment, **more})

    return type_it


def rag(words: str) -> str:
    return f".venvs/milvus/bin/python examples/rag/rag.py {words}"


def sources(answer: str) -> list[str]:
    """Files and lines that an answer names, without how near each was."""
    return re.findall(r"^ +\[\d+\] (\S+)", answer, re.MULTILINE)


def test_the_page(types: Type, tmp_path: Path) -> None:
    first, connect = scripts(PAGE)
    promised = next(text for _, text in blocks(PAGE) if text.startswith("The bakery"))
    commands = [line for line in first.splitlines() if not line.startswith("make")]
    answer = printed(types("\n".join(commands)))
    assert answer.startswith("5 passages of 3 files\n")
    # A small model says it in its own words, and not always rightly: what it was given to read is what must be right.
    assert sources(answer) == sources(promised)
    assert len(answer.splitlines()) > 1 + len(sources(answer))
    tried = types(connect)
    assert "each one found by itself" in printed(tried)
    assert "vectors of 384 numbers" in tried.stdout
    assert "RAG_EMBEDDER=minilm:latest" in (tmp_path / "rag.env").read_text(encoding="utf-8")
    again = printed(types("set -a; . ./rag.env; " + rag("ask 'Who is the baker?'")))
    assert "bakery.md:7" in again.splitlines()[1]


def test_files_of_all_kinds(types: Type, tmp_path: Path) -> None:
    odd = tmp_path / "o'd\"d \\ ä.md"
    odd.write_text("# Cheese\n\nThe cheese is kept in the cellar, behind the blue door.\n", encoding="utf-8")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "bytes.txt").write_bytes(bytes(range(256)) * 2)
    (tmp_path / "endless.txt").write_text("x" * 700)
    assert "passages of 3 files" in printed(types(rag("load *.md *.txt")))
    printed(types(rag("load *.md")))  # replaces its own passages
    answer = printed(types(rag("ask 'Where is the cheese kept?'")))
    assert answer.count(odd.name) == 1
    assert printed(types(rag("ask 'Who won the match?' --least 0.6"))) == "There is nothing about this in the files.\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ask x", "there is no collection 'passages' yet: load some files first"),
        ("load empty.txt", "there is no text in empty.txt"),
        ("--text-url http://127.0.0.1:9 ask x", "no server answers at http://127.0.0.1:9"),
        ("--embedder smollm2 ask x", "this model does not support embeddings"),
        ("--milvus http://127.0.0.1:9 ask x", "Milvus at http://127.0.0.1:9: "),
    ],
)
def test_what_goes_wrong_is_one_line(types: Type, tmp_path: Path, words: str, said: str) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    done = types(rag(words))
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.startswith("rag: ")
    assert len(done.stderr.splitlines()) == 1


def test_vectors_of_another_length_need_another_collection(types: Type) -> None:
    make = "from pymilvus import MilvusClient; MilvusClient('rag.db').create_collection('passages', dimension=8)"
    printed(types(f'.venvs/milvus/bin/python -c "{make}"'))
    done = types(rag("load examples/rag/documents"))
    assert "'passages' holds vectors of 8 numbers, and this model makes 384" in done.stderr


@pytest.fixture
def server(milvus: Path, tmp_path: Path) -> Iterator[str]:
    """The address of Milvus Lite as a server of its own, which speaks a Milvus's protocol."""
    port = free_port()
    command = [milvus / "bin" / "milvus-lite", "server", "--data-dir", tmp_path / "milvus", "--port", port]
    with Server(command, port, tmp_path / "milvus.log", ready_path=None) as started:
        yield started.url("")


def test_a_milvus_by_its_address(types: Type, server: str, tmp_path: Path) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while (tried := types(f"bident connect milvus --check --set milvus={server}")).returncode:
        assert time.monotonic() < deadline, tried.stdout + (tmp_path / "milvus.log").read_text()
    assert f"3 vectors inserted at {server}" in tried.stdout
    assert "5 passages" in printed(types(rag("load examples/rag/documents"), RAG_MILVUS=server))
    answer = printed(types(rag("ask 'How high is the lighthouse?'"), RAG_MILVUS=server))
    assert "lighthouse.md:1" in answer
    assert not (tmp_path / "rag.db").exists()
