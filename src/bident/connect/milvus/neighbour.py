"""Milvus: which model makes the vectors, how long they are, and whether they come back."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bident.client import TextClient
from bident.connect.neighbour import File, Hop, Neighbour, Wanted, until_failure
from bident.connect.site import Site
from bident.connect.text_way import able, text_address
from bident.errors import Code, ServeError

_FILE = "rag.db"
_PYTHON = Path(".venvs/milvus/bin/python")
_PROBE = Path(__file__).with_name("probe.py")
_SENTENCES = ("The cat sleeps on the sofa.", "The ferry leaves from pier three.", "Rye bread costs four coins.")
_PROBE_SECONDS = 60.0


@dataclass(frozen=True)
class _Models:
    """Who makes vectors, and who answers; the latter is empty where there is none."""

    embedder: str
    answerer: str


class Milvus(Neighbour):
    """Keeps the vectors of the text engine's embedding models."""

    name = "milvus"
    summary = "keeps the vectors of embedding models: answers from your own files, as examples/rag does"
    options = {  # noqa: RUF012
        "milvus": f"a Milvus's address, or a file ending in .db that Milvus Lite keeps; {_FILE} without it",
        "token": "user:password of that Milvus, where it wants one, for --check",
        "collection": "what the passages are kept under; passages without it",
        "python": f"a Python with pymilvus, for --check; {_PYTHON} or this one without it",
    }

    def files(self, site: Site, wanted: Wanted) -> list[File]:
        models, address = _models(site, wanted), text_address(site)
        length = len(_embed(site, models.embedder, _SENTENCES[:1])[0])
        lines = [
            "# For examples/rag/rag.py, and for whatever else keeps passages in Milvus.",
            f"BIDENT_TEXT_URL={address.theirs}",
            f"RAG_EMBEDDER={models.embedder}",
            *([f"RAG_ANSWERER={models.answerer}"] if models.answerer else []),
            f"RAG_MILVUS={shlex.quote(wanted.option('milvus', _FILE))}",
            f"RAG_COLLECTION={shlex.quote(wanted.option('collection', 'passages'))}",
            f"# Vectors of {models.embedder} have {length} numbers and the length 1: the metric is COSINE, or IP.",
        ]
        return [File("rag.env", "\n".join(lines) + "\n", "variables for examples/rag/rag.py: set -a; . ./rag.env")]

    def steps(self, site: Site, wanted: Wanted) -> list[str]:
        return [
            "make milvus   (or, in an environment of your own: pip install milvus-lite pymilvus openai)",
            "set -a; . ./rag.env",
            ".venvs/milvus/bin/python examples/rag/rag.py load examples/rag/documents",
            ".venvs/milvus/bin/python examples/rag/rag.py ask 'When is the bakery closed?'",
            "bident connect milvus --check",
        ]

    def check(self, site: Site, wanted: Wanted) -> Iterator[Hop]:
        return until_failure(_hops(site, wanted))


def _models(site: Site, wanted: Wanted) -> _Models:
    """Those that were asked for, else the first that can. Raises NOT_FOUND where nothing makes vectors."""
    text_address(site)
    embedders, answerers = (_names(site, wanted, what) for what in ("embedding", "completion"))
    if not embedders:
        raise ServeError(Code.NOT_FOUND, "no text model makes vectors; fetch one with 'bident pull minilm'")
    return _Models(embedders[0], answerers[0] if answerers else "")


def _names(site: Site, wanted: Wanted, capability: str) -> list[str]:
    """The models that can: those that were asked for; who asked for another kind leaves this one open."""
    return [model.name for model in able(site, wanted, capability) or able(site, Wanted(), capability)]


def _embed(site: Site, model: str, texts: tuple[str, ...]) -> list[list[float]]:
    address = text_address(site)
    return TextClient(address.here, credentials=address.credentials).embed(model, texts)


def _hops(site: Site, wanted: Wanted) -> Iterator[Hop]:
    try:
        model = _models(site, wanted).embedder
        vectors = _embed(site, model, _SENTENCES)
    except ServeError as error:
        yield Hop("here -> embedding model", False, error.message, "bident pull minilm; bident logs")
        return
    yield Hop("here -> embedding model", True, f"{model} makes vectors of {len(vectors[0])} numbers")
    answer = _probed(wanted, vectors)
    python = _python(wanted)
    if "missing" in answer:
        cure = "make milvus, or pip install milvus-lite pymilvus; --set python=PATH names the Python that has them"
        yield Hop("here -> Milvus's client", False, f"{python}: {answer['missing']}", cure)
        return
    version = f" {answer['version']}" if "version" in answer else ""
    yield Hop("here -> Milvus's client", True, f"pymilvus{version} in {python}")
    uri = wanted.option("milvus", _FILE)
    if "failed" in answer:
        cure = "start that Milvus, or name a file ending in .db: --set milvus=rag.db"
        yield Hop("client -> Milvus", False, f"{uri}: {answer['failed']}", cure)
        return
    came_back = answer["found"] == list(range(len(vectors)))
    seen = f"{len(vectors)} vectors inserted at {uri}; each one found by itself"
    lost = f"{uri}: searching for vectors 0, 1, 2 found {answer['found']}"
    yield Hop("client -> Milvus", came_back, seen if came_back else lost, "its log may say why")


def _python(wanted: Wanted) -> str:
    return wanted.option("python") or (str(_PYTHON) if _PYTHON.is_file() else sys.executable)


def _probed(wanted: Wanted, vectors: list[list[float]]) -> dict[str, Any]:
    """What the probe says; a file of Milvus Lite that is not there yet is not made for it."""
    uri = wanted.option("milvus", _FILE)
    with tempfile.TemporaryDirectory() as folder:
        is_new = "://" not in uri and not Path(uri).exists()
        asked = {
            "uri": str(Path(folder) / _FILE) if is_new else uri,
            "token": wanted.option("token"),
            "vectors": vectors,
        }
        command = [_python(wanted), "-I", str(_PROBE)]
        try:
            done = subprocess.run(
                command, input=json.dumps(asked), capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"no answer within {_PROBE_SECONDS:g} seconds"}
        except OSError as error:
            return {"missing": error.strerror or str(error)}
    try:
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        said = {}
    if not isinstance(said, dict) or not said.keys() & {"found", "failed", "missing"}:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return {"failed": last[0]}
    return said
