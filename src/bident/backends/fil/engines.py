"""The ways to compute a forest. They agree with one another; which is fastest depends on the batch.

``TreeliteEngine`` computes everything and is the reference. ONNX Runtime has the least overhead per
call, XGBoost the fastest loop over many rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bident.backends.fil.answers import Answer, Kind
from bident.backends.fil.forest import Forest
from bident.backends.fil.onnx_trees import SCORES, onnx_trees
from bident.backends.fil.postprocess import POSTPROCESSORS
from bident.backends.fil.treelite_library import GtilSettings, TreeliteModel
from bident.backends.fil.xgboost_library import XgboostBooster
from bident.backends.fil.xgboost_trees import xgboost_trees

Rows = NDArray[np.float32]
"""[N, features], C-contiguous, aligned, N >= 1."""


class Engine(ABC):
    """One way to compute a forest, for one thread at a time."""

    name: ClassVar[str]

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    @abstractmethod
    def scores(self, rows: Rows) -> NDArray[np.float32]:
        """Postprocessed scores [N, classes]."""

    def answer(self, rows: Rows) -> NDArray[np.float32]:
        """What ``output__0`` says, [N, width]."""
        return self._answer.of(self.scores(rows))


class TreeliteEngine(Engine):
    """GTIL: any forest that treelite reads, categories included."""

    name = "treelite"

    def __init__(self, library: TreeliteModel, answer: Answer, threads: int) -> None:
        super().__init__(answer)
        self._library = library
        self._settings = GtilSettings(threads)

    def scores(self, rows: Rows) -> NDArray[np.float32]:
        return self._library.predict(rows, self._settings)


class OnnxEngine(Engine):
    """ONNX Runtime's TreeEnsemble, with postprocessing and answer in the same graph."""

    name = "onnxruntime"

    def __init__(self, forest: Forest, answer: Answer, threads: int) -> None:
        super().__init__(answer)
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = False  # the tensors are small; an arena would keep the largest batch
        options.log_severity_level = 3
        # Spinning threads would eat the cores that the other models need.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        session = onnxruntime.InferenceSession(
            onnx_trees(forest, answer, "rows", "answer"), options, providers=["CPUExecutionProvider"]
        )
        # InferenceSession.run checks names and unpacks errors in Python: 1.3 us of the 6 us for one row.
        self._run: Any = getattr(session, "_sess", session).run
        self._scores = ["answer" if answer.kind is Kind.SCORES else SCORES]
        self._answers = ["answer"]

    def scores(self, rows: Rows) -> NDArray[np.float32]:
        result: NDArray[np.float32] = self._run(self._scores, {"rows": rows}, None)[0]
        return result

    def answer(self, rows: Rows) -> NDArray[np.float32]:
        result: NDArray[np.float32] = self._run(self._answers, {"rows": rows}, None)[0]
        return result


class XgboostEngine(Engine):
    """XGBoost's predictor, on any forest of thresholds."""

    name = "xgboost"

    def __init__(self, forest: Forest, answer: Answer, threads: int) -> None:
        """Raises ImportError when XGBoost is not installed."""
        super().__init__(answer)
        self._booster = XgboostBooster(xgboost_trees(forest), threads)
        self._base_scores = forest.base_scores.astype(np.float32)
        self._how = forest.postprocess
        self._postprocess = POSTPROCESSORS[forest.postprocess.name]

    def scores(self, rows: Rows) -> NDArray[np.float32]:
        margins = self._booster.margins(rows)
        margins += self._base_scores
        return self._postprocess(margins, self._how)
