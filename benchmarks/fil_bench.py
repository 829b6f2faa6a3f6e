"""One execution of a forest, one thread: the fil backend's instance and the best library at each batch size.

The forest is the article's: 100 trees of depth 6 over 32 features. Every contender must give XGBoost's
own probabilities. ``python -m benchmarks.fil_bench`` prints what ``make bench`` puts into its table.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.plan import Plan
from benchmarks.rounds import interleave
from benchmarks.table import Bar, Row, compared, rich_table

TITLE = "A forest of 100 trees, one thread"
SIZES = {1: 100, 16: 60, 256: 15, 8192: 1}
"""Batch size -> executions that are timed together: a millisecond or so for the fast contenders."""

REPEATS = 5
"""Such timings in one turn, of which the best counts: a shared machine interrupts."""

TOLERANCE = 1e-5
BAR = Bar(at_most=1.15)

Rows = NDArray[np.float32]
Contender = Callable[[Rows], Any]


def run(plan: Plan) -> list[Row]:
    """Microseconds per execution at each size, against the fastest peer there."""
    model = train(plan.workspace / "1" / "xgboost.json")
    return measure(plan.workspace, model, rounds=3 * plan.rounds)


def measure(folder: Path, model: Path, rounds: int) -> list[Row]:
    """``model`` lies in ``folder``/1, as in a model repository."""
    ours = instance(folder)
    peers = {"XGBoost": xgboost_peer(model), "ONNX Runtime": onnx_peer(model), "treelite": treelite_peer(model)}
    table = []
    for size, repeats in SIZES.items():
        rows = batch(size)
        check(rows, {"bident": ours, **peers})
        check(np.where(np.abs(rows) < 0.02, np.float32(np.nan), rows), {"bident": ours, **peers})
        turns = [_turn(contender, rows, repeats) for contender in (ours, *peers.values())]
        mine, *theirs = interleave(rounds, *turns)
        # The fastest in most rounds; comparing with each round's luckiest would compare with nobody.
        best = min(range(len(theirs)), key=lambda peer, times=theirs: float(np.median(times[peer])))
        table.append(compared(f"batch {size}", "us", BAR, mine, list(peers)[best], theirs[best]))
    return table


def train(path: Path) -> Path:
    """Train the article's classifier and save it as ``path``."""
    import xgboost
    from sklearn.datasets import make_classification

    inputs, labels = make_classification(n_samples=2000, n_features=32, random_state=0)
    classifier = xgboost.XGBClassifier(n_estimators=100, max_depth=6, tree_method="hist", n_jobs=1)
    classifier.fit(inputs, labels)
    path.parent.mkdir(parents=True, exist_ok=True)
    classifier.get_booster().save_model(path)
    return path


def batch(size: int) -> Rows:
    """Rows like those trained on."""
    from sklearn.datasets import make_classification

    inputs, _ = make_classification(n_samples=2000, n_features=32, random_state=0)
    return np.resize(inputs.astype(np.float32), (size, 32))


def instance(folder: Path) -> Contender:
    """The fil backend's instance, as the engine uses it: probabilities, one thread."""
    from bident.backends.base import Device, ModelFiles
    from bident.backends.fil import FilBackend
    from bident.model.config import ModelConfig
    from bident.model.proto import pb

    proto = pb.ModelConfig(name="forest", backend="fil", max_batch_size=8192)
    proto.input.add(name="input__0", data_type=pb.TYPE_FP32, dims=[32])
    proto.output.add(name="output__0", data_type=pb.TYPE_FP32, dims=[1])
    for key, value in {"model_type": "xgboost_json", "is_classifier": "true", "predict_proba": "true"}.items():
        proto.parameters[key].string_value = value
    loaded = FilBackend().load(ModelFiles(folder, 1), ModelConfig.from_proto(proto), Device(threads=1))
    return lambda rows: loaded.execute({"input__0": rows})["output__0"]


def xgboost_peer(model: Path) -> Contender:
    import xgboost

    booster = xgboost.Booster(model_file=str(model))
    booster.set_param({"nthread": 1})
    return booster.inplace_predict


def onnx_peer(model: Path) -> Contender:
    import onnxruntime

    from bident.backends.fil.answers import Answer, Kind
    from bident.backends.fil.loading import load_trees
    from bident.backends.fil.onnx_trees import onnx_trees

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    graph = onnx_trees(load_trees(model, None).forest, Answer(Kind.SCORES, 1), "rows", "probability")
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    return lambda rows: session.run(None, {"rows": rows})[0]


def treelite_peer(model: Path) -> Contender:
    import treelite

    loaded = treelite.frontend.load_xgboost_model(model, format_choice="json")
    return lambda rows: treelite.gtil.predict(loaded, rows, nthread=1)


def check(rows: Rows, contenders: dict[str, Contender]) -> None:
    """Raises AssertionError unless everyone gives the same probabilities as XGBoost."""
    expected = np.asarray(contenders["XGBoost"](rows)).reshape(-1)
    for name, contender in contenders.items():
        np.testing.assert_allclose(
            np.asarray(contender(rows)).reshape(-1), expected, rtol=0, atol=TOLERANCE, err_msg=name
        )


def _turn(contender: Contender, rows: Rows, repeats: int) -> Callable[[], float]:
    def once() -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            contender(rows)
        return (time.perf_counter() - start) / repeats * 1e6

    return lambda: min(once() for _ in range(REPEATS))


def main() -> int:
    """Measure and print. Returns 0 if every bar is cleared."""
    import tempfile

    with tempfile.TemporaryDirectory() as workspace:
        rows = run(Plan(Path(workspace)))
    Console().print(rich_table({TITLE: rows}))
    return int(not all(row.passed for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
