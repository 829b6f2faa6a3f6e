"""docs/how-to/cache-limits-warmup.md: the servers start as it says, with its parts of a configuration."""

from __future__ import annotations

import json
from pathlib import Path

from pages import Reader, Section, sections

PAGE = sections("cache-limits-warmup.md")
KEPT, FIRST, LIMITS = (PAGE[heading] for heading in ("Answers", "A", "Models"))
ASK = (
    "curl http://127.0.0.1:8000/v2/models/iris_sklearn/infer "
    """-d '{"inputs": [{"name": "X", "shape": [1, 4], "datatype": "FP32", "data": [5.1, 3.5, 1.4, 0.2]}]}'"""
)
STATS = "curl http://127.0.0.1:8000/v2/models/iris_sklearn/stats"


def _reader(folder: Path, iris: Path, *parts: Section) -> Reader:
    """Of a repository whose model has the configuration that the page shows."""
    reader = Reader(folder, iris)
    with (reader.models / iris.name / "config.pbtxt").open("a", encoding="utf-8") as config:
        config.writelines(text for part in parts for text in part.of(""))
    return reader


def test_the_same_question_is_answered_from_the_cache(tmp_path: Path, iris: Path) -> None:
    reader = _reader(tmp_path, iris, KEPT)
    (command,) = KEPT.of("sh")
    with reader.starts(command):
        assert reader.types(ASK) == reader.types(ASK)
        figures = json.loads(reader.types(STATS))["model_stats"][0]["inference_stats"]
    assert (figures["cache_miss"]["count"], figures["cache_hit"]["count"]) == (1, 1)


def test_samples_are_run_before_the_first_request_and_limits_hold(tmp_path: Path, iris: Path) -> None:
    reader = _reader(tmp_path, iris, FIRST, LIMITS)
    warmup = reader.models / iris.name / "warmup"
    warmup.mkdir()
    (warmup / "row").write_bytes(bytes(16))
    (command,) = LIMITS.of("sh")
    with reader.starts(command):
        stats = json.loads(reader.types(STATS))["model_stats"][0]
        # The page's two instances, and the one that the sample has, ran a row once and a batch of eight three times.
        assert (stats["execution_count"], stats["inference_count"]) == (3 * 4, 3 * (1 + 3 * 8))
        reader.types(ASK)
