"""What people report of ONNX models: ZipMap, the batch dimension in the config, a batch fixed in the file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from asking import Asker, tensor, x
from bug_models import Shared
from model_folders import declared, onnx_identity, x_to_y
from numpy.typing import NDArray

# A classifier as scikit-learn exports it: its probabilities are a list of dictionaries.


@pytest.fixture(scope="module")
def iris() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    from sklearn.datasets import load_iris

    features, classes = load_iris(return_X_y=True)
    return features.astype(np.float32), classes


@pytest.mark.parametrize("kind", ["INT64", "BYTES"], ids=["integer-labels", "string-labels"])
def test_a_classifier_exported_with_zipmap_gives_its_probabilities_as_a_tensor(
    shared: Shared, ask: Asker, iris: tuple[NDArray[np.float32], NDArray[np.int64]], kind: str
) -> None:
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression

    features, classes = iris
    labels = classes if kind == "INT64" else np.array(["setosa", "versicolor", "virginica"])[classes]
    classifier = LogisticRegression(max_iter=500).fit(features, labels)
    config = (
        f'backend: "onnxruntime"\nmax_batch_size: 8\n{declared("input", "X", dims="[ 4 ]")}'
        + declared("output", "output_label", kind, "[ 1 ]", "reshape { shape: [ ] }")
        + declared("output", "output_probability", dims="[ 3 ]")
    )
    name = f"zipmap_{kind.lower()}"
    assert shared.offer(name, config, model_onnx=to_onnx(classifier, features[:1])).status == 200
    rows = features[[0, 60, 140]]
    answer = ask.infer(name, tensor("X", "FP32", [3, 4], rows.ravel().tolist()))
    assert answer.output("output_probability")["shape"] == [3, 3]
    np.testing.assert_allclose(
        answer.data("output_probability"), classifier.predict_proba(rows).ravel(), rtol=1e-4, atol=1e-6
    )
    assert answer.data("output_label") == classifier.predict(rows).tolist()
    label_only = ask.infer(name, tensor("X", "FP32", [3, 4], rows.ravel().tolist()), outputs=[{"name": "output_label"}])
    assert [output["name"] for output in label_only.json["outputs"]] == ["output_label"]
    assert label_only.data("output_label") == classifier.predict(rows).tolist()


# The batch dimension, which the config leaves out or repeats.


def test_a_config_that_repeats_the_batch_dimension_is_refused_with_the_right_dims(shared: Shared, ask: Asker) -> None:
    config = f'backend: "onnxruntime"\nmax_batch_size: 4\n{x_to_y(dims="[ -1, 3 ]")}'
    message = shared.offer("batch_twice", config, model_onnx=onnx_identity(["N", 3])).refused(
        "the model expects 2 dimensions (shape [-1,3])", "specifies 3 dimensions", "shape [-1,-1,3]"
    )
    assert "must not repeat the batch dimension" in message


def test_a_model_without_batching_declares_the_whole_shape(shared: Shared, ask: Asker) -> None:
    config = f'backend: "onnxruntime"\nmax_batch_size: 0\n{x_to_y(dims="[ -1, 3 ]")}'
    assert shared.offer("whole_shape", config, model_onnx=onnx_identity(["N", 3])).status == 200
    output = ask.infer("whole_shape", x("FP32", [1, 2, 3, 4, 5, 6], [2, 3])).output()
    assert (output["shape"], output["data"]) == ([2, 3], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])


FIXED = [1, 3, 8, 8]


def test_a_batch_larger_than_the_file_can_take_is_refused_at_load(shared: Shared, ask: Asker) -> None:
    config = f'backend: "onnxruntime"\nmax_batch_size: 16\n{x_to_y(dims="[ 3, 8, 8 ]")}'
    shared.offer("fixed_at_one", config, model_onnx=onnx_identity(FIXED)).refused(
        "tensor 'X'", "shape expected by the model is [1,3,8,8]", "max_batch_size is 16", "dynamic batch axis"
    )


@pytest.mark.parametrize("config", [None, f"max_batch_size: 1\ndynamic_batching {{ }}\n{x_to_y(dims='[ 3, 8, 8 ]')}"])
def test_a_file_fixed_at_one_row_answers_requests_side_by_side(shared: Shared, ask: Asker, config: str | None) -> None:
    name = f"one_row_{'derived' if config is None else 'declared'}"
    backend = None if config is None else f'backend: "onnxruntime"\n{config}'
    assert shared.offer(name, backend, model_onnx=onnx_identity(FIXED)).status == 200

    def question(number: int) -> bool:
        answer = ask.infer(name, x("FP32", [number] * 192, FIXED))
        return answer.data() == [float(number)] * 192

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(question, range(16)))


# Names that the config has and the file has not.


def test_a_tensor_name_that_the_file_lacks_is_refused_at_load_with_a_hint(shared: Shared, ask: Asker) -> None:
    config = f'backend: "onnxruntime"\nmax_batch_size: 4\n{declared("input", "INPUT", dims="[ 3 ]")}'
    config += declared("output", "Y", dims="[ 3 ]")
    shared.offer("wrong_name", config, model_onnx=onnx_identity(["N", 3])).refused(
        "unexpected inference input 'INPUT'", "did you mean 'X'?"
    )


def test_a_datatype_other_than_the_files_is_refused_at_load(shared: Shared, ask: Asker) -> None:
    config = f'backend: "onnxruntime"\nmax_batch_size: 4\n{x_to_y("FP64", "[ 3 ]")}'
    shared.offer("wrong_type", config, model_onnx=onnx_identity(["N", 3])).refused(
        "TYPE_FP64", "'X'", "write data_type: TYPE_FP32"
    )
