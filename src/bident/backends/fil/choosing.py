"""Builds the engines a forest can have, keeps those that prove equal, and finds the fastest per batch size."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from bident.backends.fil.answers import Answer
from bident.backends.fil.engines import Engine, OnnxEngine, Rows, TreeliteEngine, XgboostEngine
from bident.backends.fil.forest import Forest
from bident.backends.fil.loading import TreeModel
from bident.backends.fil.postprocess import POSTPROCESSORS
from bident.backends.fil.xgboost_trees import can_write

TOLERANCE = 1e-5
"""How far an engine's scores may lie from treelite's, relative to 1 or the score, whichever is larger."""

_LOG = logging.getLogger("bident.fil")
_SIZES = (1, 16, 256, 2048)
_REPEATS = 5
_BUDGET = 0.010
"""Seconds that timing one engine at one size may take (it is run twice at least)."""

_HOPELESS = 3.0
_PROBE_WORK = 100_000  # trees x rows: what treelite computes in a few milliseconds


class EngineChoice:
    """The fastest engine for each batch size."""

    def __init__(self, engines: list[Engine]) -> None:
        """``engines``: the fastest at each of the measured sizes."""
        self.by_size = dict(zip(_SIZES, engines, strict=True))
        # Between two measured sizes, the nearer one on a logarithmic scale decides.
        self._borders = [int((low * high) ** 0.5) + 1 for low, high in pairwise(_SIZES)]
        self._engines = engines

    def best(self, rows: int) -> Engine:
        """The engine for a batch of ``rows``."""
        return self._engines[bisect_right(self._borders, rows)]


def choose_engines(model: TreeModel, answer: Answer, threads: int) -> EngineChoice:
    """Build, compare and time the engines for ``model``."""
    forest = model.forest
    reference = TreeliteEngine(model.library, answer, threads)
    engines: list[Engine] = [reference]
    if forest.plain and forest.postprocessor in POSTPROCESSORS:
        engines += _others(forest, answer, threads)
    probe = _probe_rows(forest)
    if len(engines) > 1:
        truth = reference.scores(probe)
        engines = [engine for engine in engines if engine is reference or _agrees(engine, probe, truth)]
    choice = EngineChoice(_fastest(engines, probe))
    chosen = ", ".join(f"{size}: {engine.name}" for size, engine in choice.by_size.items())
    _LOG.debug("engines of %s by batch size: %s", model.path, chosen)
    return choice


def _others(forest: Forest, answer: Answer, threads: int) -> list[Engine]:
    makers: dict[str, Callable[[], Engine]] = {"onnxruntime": partial(OnnxEngine, forest, answer, threads)}
    if can_write(forest):
        makers["xgboost"] = partial(XgboostEngine, forest, answer, threads)
    engines = []
    for name, make in makers.items():
        try:
            engines.append(make())
        except Exception as error:  # noqa: BLE001 - whatever a library raises, the others remain
            _LOG.debug("engine %s is not available: %s", name, error)
    return engines


def _agrees(engine: Engine, probe: Rows, truth: NDArray[np.float32]) -> bool:
    try:
        scores = engine.scores(probe)
        answers = engine.answer(probe[:1])
    except Exception as error:  # noqa: BLE001 - as above
        _LOG.warning("engine %s fails and is not used: %s", engine.name, error)
        return False
    same = scores.shape == truth.shape and len(answers) == 1
    if same and np.allclose(scores, truth, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
        return True
    _LOG.warning("engine %s disagrees with treelite by more than %g and is not used", engine.name, TOLERANCE)
    return False


def _probe_rows(forest: Forest) -> Rows:
    """Rows that find differences: values on, just below and just above thresholds, zeros, extremes, NaN."""
    random = np.random.default_rng(0)
    count = int(np.clip(_PROBE_WORK // max(1, forest.trees), 16, 512))
    rows = random.standard_normal((count, forest.features)).astype(np.float32)
    inner = np.flatnonzero(~forest.leaf)
    if len(inner):
        # Each row follows a few random nodes' thresholds, so that every feature's own scale is met.
        picked = random.choice(inner, (count, min(64, 4 * forest.features)))
        around = forest.threshold[picked]
        side = random.integers(-1, 2, picked.shape)
        around = np.where(
            side == 0, around, np.nextafter(around, np.where(side < 0, -np.inf, np.inf), dtype=np.float32)
        )
        np.put_along_axis(rows, forest.feature[picked], around, axis=1)
    special = random.random(rows.shape)
    rows[special < 0.05] = np.nan
    rows[(special >= 0.05) & (special < 0.08)] = 0
    rows[(special >= 0.08) & (special < 0.09)] = 1e30
    rows[(special >= 0.09) & (special < 0.10)] = -1e30
    return rows


def _fastest(engines: list[Engine], probe: Rows) -> list[Engine]:
    """The fastest engine at each of the sizes; one that falls far behind is not measured further."""
    best: list[Engine] = []
    rows = np.resize(probe, (_SIZES[-1], probe.shape[1]))
    for size in _SIZES:
        if len(engines) > 1:
            seconds = {engine: _time(engine, rows[:size]) for engine in engines}
            engines = sorted(engines, key=seconds.__getitem__)
            limit = _HOPELESS * seconds[engines[0]]
            # Overhead per call dominates small batches: only from the third size on is slow hopeless.
            engines = [engine for engine in engines if size < _SIZES[2] or seconds[engine] <= limit]
        best.append(engines[0])
    return best


def _time(engine: Engine, rows: Rows) -> float:
    """The shortest of a few runs, the first not counted."""
    engine.answer(rows)
    shortest, start = np.inf, perf_counter()
    for _ in range(_REPEATS):
        before = perf_counter()
        engine.answer(rows)
        now = perf_counter()
        shortest = min(shortest, now - before)
        if now - start > _BUDGET:
            break
    return float(shortest)
