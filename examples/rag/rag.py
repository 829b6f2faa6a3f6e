"""Answers questions about your own files, with models of the text engine and a Milvus for the passages.

    python rag.py load documents            # cut into passages, embed, store
    python rag.py ask 'When is the bakery closed?'

The passages are in ``rag.db``, which Milvus Lite keeps inside this program. ``--milvus http://milvus:19530`` has a real
Milvus keep them, with the same code. Every option is also a variable: ``python rag.py --help``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from openai import APIConnectionError, OpenAI, OpenAIError
from pymilvus import DataType, MilvusClient, MilvusException

SUFFIXES = (".md", ".rst", ".txt")
PASSAGE_CHARACTERS = 300
"""Two or three sentences: enough for one fact, and little enough for a small model to find it in."""
EMBEDDED_AT_ONCE = 32
INSTRUCTION = (
    "You answer questions. Use only the facts in the passages. Answer in one short sentence. "
    "If the passages do not tell, say that you do not know."
)


@dataclass(frozen=True)
class Passage:
    """Some paragraphs of a file, and the line they begin at."""

    source: str
    line: int
    text: str


@dataclass(frozen=True)
class Found:
    """A passage, and how near it is to the question: 1 is the same, 0 has nothing to do with it."""

    passage: Passage
    score: float


def passages(path: Path) -> Iterator[Passage]:
    """The paragraphs of the file at ``path``, joined while they stay short, cut where one is long."""
    begun, text = 1, ""
    for line, paragraph in paragraphs(path.read_text(encoding="utf-8", errors="replace")):
        if text and len(text) + len(paragraph) > PASSAGE_CHARACTERS:
            yield Passage(str(path), begun, text)
            text = ""
        begun, text = (begun, f"{text}\n\n{paragraph}") if text else (line, paragraph)
        while len(text) > PASSAGE_CHARACTERS:
            end = text.rfind(" ", 0, PASSAGE_CHARACTERS)
            end = end if end > 0 else PASSAGE_CHARACTERS
            yield Passage(str(path), begun, text[:end])
            text = text[end:].strip()
    if text:
        yield Passage(str(path), begun, text)


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """What stands between empty lines, and the line it begins at."""
    begun, lines = 0, []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip():
            begun = begun or number
            lines.append(line.strip())
        elif lines:
            yield begun, "\n".join(lines)
            begun, lines = 0, []


def files(places: Iterable[Path]) -> Iterator[Path]:
    """Files as they are named, and those in folders that hold text."""
    for place in places:
        if place.is_dir():
            yield from sorted(path for path in place.rglob("*") if path.suffix in SUFFIXES and path.is_file())
        else:
            yield place


class Models:
    """Two models of an OpenAI-compatible server: one that embeds, one that answers."""

    def __init__(self, url: str, embedder: str, answerer: str) -> None:
        self._client = OpenAI(base_url=f"{url.rstrip('/')}/v1", api_key=os.environ.get("BIDENT_API_KEY") or "none")
        self._embedder, self._answerer = embedder, answerer

    def embed(self, texts: list[str]) -> list[list[float]]:
        """One vector for each text, all of the same length."""
        vectors: list[list[float]] = []
        for first in range(0, len(texts), EMBEDDED_AT_ONCE):
            some = texts[first : first + EMBEDDED_AT_ONCE]
            vectors += [
                each.embedding for each in self._client.embeddings.create(model=self._embedder, input=some).data
            ]
        return vectors

    def answer(self, question: str, found: list[Found]) -> str:
        """What the model makes of the passages."""
        facts = "\n\n".join(each.passage.text for each in found)
        messages = [
            {"role": "system", "content": INSTRUCTION},
            {"role": "user", "content": f"Passages:\n{facts}\n\nQuestion: {question}"},
        ]
        answer = self._client.chat.completions.create(
            model=self._answerer, messages=messages, temperature=0, max_tokens=120
        )
        return (answer.choices[0].message.content or "").strip()


class Shelf:
    """A collection of passages in a Milvus: a file ending in ``.db``, or a server."""

    def __init__(self, uri: str, collection: str, token: str = "") -> None:
        self._client = MilvusClient(uri, token=token)
        self._collection = collection

    def put(self, kept: list[Passage], vectors: list[list[float]]) -> None:
        """Keep ``kept`` in place of whatever there was of the same files."""
        self._make(len(vectors[0]))
        for source in {passage.source for passage in kept}:
            self._client.delete(self._collection, filter=f"source == {json.dumps(source, ensure_ascii=False)}")
        rows = [{"id": key(each), "vector": vector, **asdict(each)} for each, vector in zip(kept, vectors, strict=True)]
        self._client.insert(self._collection, rows)

    def find(self, vector: list[float], count: int) -> list[Found]:
        """The nearest passages, the nearest first."""
        if not self._client.has_collection(self._collection):
            sys.exit(f"rag: there is no collection '{self._collection}' yet: load some files first")
        self._client.load_collection(self._collection)
        fields = ["source", "line", "text"]
        (hits,) = self._client.search(self._collection, data=[vector], limit=count, output_fields=fields)
        return [Found(Passage(**{name: hit["entity"][name] for name in fields}), hit["distance"]) for hit in hits]

    def _make(self, dimensions: int) -> None:
        if self._client.has_collection(self._collection):
            there = self._client.describe_collection(self._collection)["fields"]
            length = next(field["params"]["dim"] for field in there if field["name"] == "vector")
            if int(length) != dimensions:
                sys.exit(
                    f"rag: the collection '{self._collection}' holds vectors of {length} numbers, and this model makes "
                    f"{dimensions}: choose another --collection for it"
                )
            return
        schema = MilvusClient.create_schema()
        schema.add_field("id", DataType.VARCHAR, max_length=64, is_primary=True)
        schema.add_field("source", DataType.VARCHAR, max_length=4096)
        schema.add_field("line", DataType.INT64)
        schema.add_field("text", DataType.VARCHAR, max_length=65535)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimensions)
        index = MilvusClient.prepare_index_params()
        index.add_index("vector", index_type="AUTOINDEX", metric_type="COSINE")
        self._client.create_collection(self._collection, schema=schema, index_params=index)


def key(passage: Passage) -> str:
    """A passage's own name: the same one whenever the same file is loaded."""
    return hashlib.sha256(json.dumps(asdict(passage)).encode()).hexdigest()


def load(models: Models, shelf: Shelf, places: list[Path]) -> None:
    """Store the passages of all files in ``places``."""
    kept = [passage for path in files(places) for passage in passages(path)]
    if not kept:
        sys.exit(f"rag: there is no text in {', '.join(map(str, places))} (of folders: {', '.join(SUFFIXES)})")
    shelf.put(kept, models.embed([passage.text for passage in kept]))
    print(f"{len(kept)} passages of {len({passage.source for passage in kept})} files")


def ask(models: Models, shelf: Shelf, question: str, count: int, least: float) -> None:
    """Print an answer and where it is from."""
    (vector,) = models.embed([question])
    found = [each for each in shelf.find(vector, count) if each.score >= least]
    if not found:
        print("There is nothing about this in the files.")
        return
    print(models.answer(question, found))
    for number, each in enumerate(found, 1):
        print(f"  [{number}] {each.passage.source}:{each.passage.line} ({each.score:.2f})")


def arguments() -> argparse.Namespace:
    """The command line; what it leaves out comes from the environment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, variable, default, about in (
        ("--text-url", "BIDENT_TEXT_URL", "http://127.0.0.1:11434", "the server with the models"),
        ("--embedder", "RAG_EMBEDDER", "minilm", "the model that makes vectors"),
        ("--answerer", "RAG_ANSWERER", "smollm2", "the model that answers"),
        ("--milvus", "RAG_MILVUS", "rag.db", "a file ending in .db, or the address of a Milvus"),
        ("--milvus-token", "RAG_MILVUS_TOKEN", "", "user:password, where that Milvus wants one"),
        ("--collection", "RAG_COLLECTION", "passages", "what the passages are kept under"),
    ):
        parser.add_argument(option, default=os.environ.get(variable, default), help=f"{about} ({variable})")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("load", help="store files").add_argument("places", nargs="+", type=Path)
    asking = commands.add_parser("ask", help="answer a question")
    asking.add_argument("question")
    asking.add_argument("--count", type=int, default=3, help="how many passages the model is shown")
    asking.add_argument("--least", type=float, default=0.3, help="how near a passage has to be, 0 to 1")
    return parser.parse_args()


def main() -> None:
    """Run one command; what goes wrong is said in one line."""
    given = arguments()
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it logs what it raises, with a traceback
    models = Models(given.text_url, given.embedder, given.answerer)
    try:
        shelf = Shelf(given.milvus, given.collection, given.milvus_token)
        if given.command == "load":
            load(models, shelf, given.places)
        else:
            ask(models, shelf, given.question, given.count, given.least)
    except APIConnectionError:
        sys.exit(f"rag: no server answers at {given.text_url}: 'bident up' starts one, --text-url says where it is")
    except MilvusException as error:
        sys.exit(f"rag: Milvus at {given.milvus}: {error.message}")
    except (OpenAIError, OSError) as error:
        sys.exit(f"rag: {error}")


if __name__ == "__main__":
    main()
