"""Builds the engines a forest can have, keeps those that prove equal, and finds the fastest per batch size."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from time import perf_counter, thread_time

import numpy as np
from numpy.typing import NDArray

from bident.backends.fil.answers import Answer
from bident.backends.fil.engines import Engine, OnnxEngine, Rows, TreeliteEngine, XgboostEngine
from bident.backends.fil.forest import Forest
from bident.backends.fil.loading import TreeModel
from bident.backends.fil.postprocess import POSTPROCESSORS
from bident.backends.fil.xgboost_trees import can_write
from bident.errors import ConfigError, ServeError

TOLERANCE = 1e-5
"""How far an engine's scores may lie from treelite's, relative to 1 or the score, whichever is larger."""

_LOG = logging.getLogger("bident.fil")
_SIZES = (1, 16, 256, 2048)
_BUDGET = 0.007
"""Seconds of this thread's own that timing one engine at one size may take (it runs three times at least)."""

_MOST_RUNS = 60  # a branch predictor takes dozens of runs to learn a batch
_HOPELESS = 5.0
"""An engine so many times slower is not tried with more rows."""

_CLOSE, _CLEAR = 2.0, 1.3  # times as fast: to be measured again; to take over
_MOST_ELEMENTS = 2_000_000  # of the rows tried: forests can have a hundred thousand features
_PROBE_WORK = 100_000  # trees x rows: what treelite computes in a few milliseconds


@dataclass(frozen=True)
class EngineChoice:
    """The fastest engine for each batch size: ``engines[i]`` below ``borders[i]`` rows, the last one above all."""

    engines: tuple[Engine, ...]
    borders: tuple[int, ...]

    def best(self, rows: int) -> Engine:
        """The engine for a batch of ``rows``."""
        return self.engines[bisect_right(self.borders, rows)]

    def __str__(self) -> str:
        parts = [
            f"{engine.name} below {border} rows" for engine, border in zip(self.engines, self.borders, strict=False)
        ]
        return ", ".join([*parts, f"{self.engines[-1].name} {'above' if parts else 'always'}"])


def choose_engines(model: TreeModel, answer: Answer, threads: int) -> EngineChoice:
    """Build, compare and time the engines for ``model``. Raises ConfigError where none can compute it."""
    forest = model.forest
    reference = TreeliteEngine(model.library, answer, threads)
    engines: list[Engine] = [reference]
    if forest.plain and forest.postprocess.name in POSTPROCESSORS:
        engines += _others(forest, answer, threads)
    probe = _probe_rows(forest)
    try:
        truth = reference.scores(probe)
    except ServeError as error:
        raise ConfigError(f"fil cannot compute {model.path}: {error.message}") from None
    engines = [engine for engine in engines if engine is reference or _agrees(engine, probe, truth)]
    choice = _compare(engines, _typical_rows(forest)) if len(engines) > 1 else EngineChoice((reference,), ())
    _LOG.debug("engines of %s: %s", model.path, choice)
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
    count = _bounded(int(np.clip(_PROBE_WORK // max(1, forest.trees), 16, 512)), forest)
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


def _bounded(count: int, forest: Forest) -> int:
    return max(1, min(count, _MOST_ELEMENTS // max(1, forest.features)))


def _typical_rows(forest: Forest) -> Rows:
    """Rows as the trees were made for: each feature spread as its thresholds are, nothing missing.

    How fast an engine is depends on how well the processor predicts its branches, hence on the data.
    """
    inner = ~forest.leaf & np.isfinite(forest.threshold)
    feature, threshold = forest.feature[inner], forest.threshold[inner].astype(np.float64)
    count = np.maximum(np.bincount(feature, minlength=forest.features), 1)
    mean = np.bincount(feature, threshold, forest.features) / count
    deviation = np.sqrt(np.bincount(feature, (threshold - mean[feature]) ** 2, forest.features) / count)
    rows = np.random.default_rng(1).standard_normal((_bounded(_SIZES[-1], forest), forest.features))
    return (mean + rows * np.where(deviation > 0, deviation, 1)).astype(np.float32)


def _compare(engines: list[Engine], rows: Rows) -> EngineChoice:
    """Time ``engines`` at each of the sizes; between two sizes, time grows by a straight line."""
    measured: list[dict[Engine, float]] = []
    for size in (size for size in _SIZES if size <= len(rows)):
        seconds = {engine: _time(engine, rows[:size]) for engine in engines}
        if _is_close(seconds):
            # Once more: what the machine did meanwhile may have hit one of them only.
            seconds = {engine: min(seconds[engine], _time(engine, rows[:size])) for engine in engines}
        if measured:
            before = measured[-1]
            engines = [engine for engine in engines if not _is_hopeless(engine, seconds, before)]
        measured.append(seconds)
    return _borders(measured)


def _is_hopeless(engine: Engine, seconds: dict[Engine, float], before: dict[Engine, float]) -> bool:
    """Whether ``engine`` is far behind, and falls back further with each row: not for its overhead alone."""
    best = min(seconds, key=seconds.__getitem__)
    gained = max(seconds[best] - before[best], 0.0)
    return seconds[engine] > _HOPELESS * seconds[best] and seconds[engine] - before[engine] > _HOPELESS * gained


def _is_close(seconds: dict[Engine, float]) -> bool:
    first, *others = sorted(seconds.values())
    return bool(others) and others[0] < _CLOSE * first


def _winners(measured: list[dict[Engine, float]]) -> list[Engine]:
    """The engine for each of the sizes: the fastest, but below the largest size no narrow win makes a change.

    On a busy machine a short measurement can be wrong by a quarter; with many rows the lead is clear.
    """
    winners: list[Engine] = []
    for seconds in measured:
        fastest = min(seconds, key=seconds.__getitem__)
        margin = 1.0 if seconds is measured[-1] else _CLEAR
        holder = winners[-1] if winners else fastest
        winners.append(holder if seconds.get(holder, np.inf) <= margin * seconds[fastest] else fastest)
    return winners


def _borders(measured: list[dict[Engine, float]]) -> EngineChoice:
    """From the seconds that each engine took at each of the sizes."""
    best = _winners(measured)
    chosen, borders = [best[0]], []
    for place, (before, after) in enumerate(pairwise(best)):
        if after is not before:
            behind = max(measured[place][after] - measured[place][before], 0.0)
            ahead = measured[place + 1].get(before, np.inf) - measured[place + 1][after]
            share = behind / (behind + ahead) if np.isfinite(ahead) and behind + ahead > 0 else 0.0
            chosen.append(after)
            borders.append(int(_SIZES[place] + share * (_SIZES[place + 1] - _SIZES[place])) + 1)
    return EngineChoice(tuple(chosen), tuple(borders))


def _time(engine: Engine, rows: Rows) -> float:
    """The shortest of several runs in a row, the first not counted: caches and branch predictor are warm."""
    engine.answer(rows)
    shortest, start = np.inf, thread_time()
    for done in range(_MOST_RUNS):
        before = perf_counter()
        engine.answer(rows)
        shortest = min(shortest, perf_counter() - before)
        # Not by the clock: being preempted would leave too few runs to get warm.
        if done >= 2 and thread_time() - start > _BUDGET:
            break
    return float(shortest)
