"""What the two iris recipes share: the forest, its labels, the question and its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bident.zoo.extras import need
from bident.zoo.folder import model_path
from bident.zoo.recipe import Facts, Question, Tensors, output, wrong_answer

SPECIES = ("setosa", "versicolor", "virginica")
LABELS_FILE = "iris_labels.txt"
_OPSET = 17


def export_forest(folder: Path, *, zipmap: bool) -> Facts:
    """Train a random forest of 50 trees and export it with skl2onnx, with or without its ZipMap node."""
    datasets, ensemble, skl2onnx = need("sklearn.datasets"), need("sklearn.ensemble"), need("skl2onnx")
    features, species = datasets.load_iris(return_X_y=True)
    forest = ensemble.RandomForestClassifier(n_estimators=50, random_state=0).fit(features, species)
    options: dict[int, Any] = {id(forest): {"zipmap": zipmap}}
    exported = skl2onnx.to_onnx(forest, features[:1].astype(np.float32), target_opset=_OPSET, options=options)
    model_path(folder, "model.onnx").write_bytes(exported.SerializeToString())
    (folder / LABELS_FILE).write_text("\n".join(SPECIES) + "\n", encoding="utf-8")
    origin = f"trained here with scikit-learn {need('sklearn').__version__} on Fisher's iris data"
    return Facts(synthetic=False, origin=origin, expected={})


def setosa_question(label_name: str, probabilities_name: str) -> list[Question]:
    """The iris [5.1, 3.5, 1.4, 0.2], a setosa beyond doubt; the names are those of the two outputs."""

    def inputs() -> Tensors:
        return {"X": np.array([[5.1, 3.5, 1.4, 0.2]], np.float32)}

    def check(answer: Tensors) -> str:
        label = int(output(answer, label_name, (1, 1))[0, 0])
        probabilities = output(answer, probabilities_name, (1, 3))[0]
        if label != 0 or not np.allclose(probabilities, [1, 0, 0], atol=1e-3):
            raise wrong_answer("label 0, probabilities near [1, 0, 0]", f"{label}, {probabilities.tolist()}")
        return f"{SPECIES[label]} {probabilities[label]:.4f}"

    return [Question("[5.1, 3.5, 1.4, 0.2]", inputs, check)]
