"""examples/rag as docs/how-to/rag.md has it: files in, answers with sources out, over Milvus Lite and a Milvus."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from text_serving import TextServing

from benchmarks.ports import free_port

# Installing takes a minute.
pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "rag.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
_DEADLINE_SECONDS = 60.0

Type = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def milvus() -> Path:
    """The environment of ``make milvus``, made if it is not there or its packages have changed."""
    command = ["make", "milvus", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / ".venvs" / "milvus"


@pytest.fixture
def types(milvus: Path, serving: TextServing, tmp_path: Path) -> Type:
    """Runs a command in a folder that looks like this repository."""
    for name in ("examples", ".venvs"):
        (tmp_path / name).symlink_to(ROOT / name)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OLLAMA_", "BIDENT_", "RAG_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **kept,
        "PATH": path,
        "BIDENT_TEXT_URL": serving.url,
        "no_proxy": "*",
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    def type_it(command: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-ec", command],
            cwd=tmp_path,
            env={**environment, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    return type_it


def printed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, (done.args, done.stdout, done.stderr)
    return done.stdout


def rag(words: str) -> str:
    return f".venvs/milvus/bin/python examples/rag/rag.py {words}"


def test_the_page(types: Type, tmp_path: Path) -> None:
    first, connect = [text for kind, text in BLOCKS if kind == "sh"]
    promised = next(text for kind, text in BLOCKS if text.startswith("The bakery"))
    commands = [line for line in first.splitlines() if not line.startswith("make")]
    answer = printed(types("\n".join(commands)))
    assert answer.startswith("5 passages of 3 files\n")
    assert "Mondays" in answer
    assert re.sub(r"\(0\.\d+\)", "", answer.partition("\n")[2]) == re.sub(r"\(0\.\d+\)", "", promised)
    tried = types(connect)
    assert "each one found by itself" in printed(tried)
    assert "vectors of 384 numbers" in tried.stdout
    assert "RAG_EMBEDDER=minilm:latest" in (tmp_path / "rag.env").read_text(encoding="utf-8")
    again = printed(types("set -a; . ./rag.env; " + rag("ask 'Who is the baker?'")))
    assert "Agnes" in again
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
    assert "cellar" in answer
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
    command = [milvus / "bin" / "milvus-lite", "server", "--data-dir", tmp_path / "milvus", "--port", str(port)]
    with (tmp_path / "milvus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def test_a_milvus_by_its_address(types: Type, server: str, tmp_path: Path) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while (tried := types(f"bident connect milvus --check --set milvus={server}")).returncode:
        assert time.monotonic() < deadline, tried.stdout + (tmp_path / "milvus.log").read_text()
    assert f"3 vectors inserted at {server}" in tried.stdout
    assert "5 passages" in printed(types(rag("load examples/rag/documents"), RAG_MILVUS=server))
    answer = printed(types(rag("ask 'How high is the lighthouse?'"), RAG_MILVUS=server))
    assert "31 met" in answer
    assert "lighthouse.md:1" in answer
    assert not (tmp_path / "rag.db").exists()
