"""Classifiers exported with ZipMap are served as if they had been exported without it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models as build
import pytest
import skl2onnx
import sklearn.datasets
from numpy.typing import NDArray
from onnx import TensorProto

from bident.backends.base import Device, ModelFiles
from bident.backends.onnx import OnnxBackend
from bident.backends.onnx.zipmap import without_zipmap
from bident.errors import ConfigError

NAMES = np.array(["setosa", "versicolor", "virginica"])


@pytest.fixture(scope="module")
def iris() -> tuple[NDArray[Any], NDArray[Any]]:
    features, classes = sklearn.datasets.load_iris(return_X_y=True)
    return features.astype(np.float32), classes


@pytest.fixture(scope="module", params=["int", "string", "binary", "pipeline"])
def exports(request: pytest.FixtureRequest, iris: tuple[NDArray[Any], NDArray[Any]]) -> tuple[bytes, bytes]:
    """One classifier, exported with and without ZipMap."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    features, classes = iris
    labels = {"int": classes, "string": NAMES[classes], "binary": classes > 0, "pipeline": NAMES[classes]}[
        request.param
    ]
    classifier = {
        "int": RandomForestClassifier(5, random_state=0),
        "string": LogisticRegression(),
        "binary": LogisticRegression(),
        "pipeline": make_pipeline(StandardScaler(), RandomForestClassifier(5, random_state=0)),
    }[request.param]
    classifier.fit(features, labels.astype(int) if labels.dtype == bool else labels)
    with_zipmap = skl2onnx.to_onnx(classifier, features[:1])
    without = skl2onnx.to_onnx(classifier, features[:1], options={"zipmap": False})
    return with_zipmap.SerializeToString(), without.SerializeToString()


def answers(files: ModelFiles, features: NDArray[Any]) -> list[NDArray[Any]]:
    """Label and probabilities of the first four rows, by a completed config."""
    instance = build.load(files, build.complete(files, build.config()))
    return list(instance.execute({"X": features[[0, 60, 70, 140]]}).values())


def test_same_answers_as_without_zipmap(
    tmp_path: Path, exports: tuple[bytes, bytes], iris: tuple[NDArray[Any], NDArray[Any]]
) -> None:
    zipped = answers(build.folder(tmp_path / "with", exports[0]), iris[0])
    plain = answers(build.folder(tmp_path / "without", exports[1]), iris[0])
    assert [array.dtype for array in zipped] == [array.dtype for array in plain]
    assert zipped[0].tolist() == plain[0].tolist()
    assert zipped[1].tobytes() == plain[1].tobytes()


def test_completed_config_has_one_column_per_class(tmp_path: Path, exports: tuple[bytes, bytes]) -> None:
    done = build.complete(build.folder(tmp_path, exports[0]), build.config())
    other = build.complete(build.folder(tmp_path / "without", exports[1]), build.config())
    assert list(done.outputs) == ["output_label", "output_probability"]
    assert done.outputs["output_probability"].dims == other.outputs["probabilities"].dims
    assert done.outputs["output_probability"].datatype.name == "FP32"
    assert done.outputs["output_label"].dims == (1,)
    assert done.outputs["output_label"].reshape == ()
    assert done.max_batch_size == 4


@pytest.fixture
def zipped(tmp_path: Path, iris: tuple[NDArray[Any], NDArray[Any]]) -> ModelFiles:
    from sklearn.linear_model import LogisticRegression

    classifier = LogisticRegression().fit(iris[0], NAMES[iris[1]])
    return build.folder(tmp_path, skl2onnx.to_onnx(classifier, iris[0][:1]))


def declared(probability_dims: str) -> str:
    return (
        "max_batch_size: 8"
        + build.tensors("input", ("X", "FP32", "[ 4 ]"))
        + build.tensors(
            "output",
            ("output_label", "STRING", "[ 1 ] reshape { shape: [ ] }"),
            ("output_probability", "FP32", probability_dims),
        )
    )


def test_explicit_config(zipped: ModelFiles, iris: tuple[NDArray[Any], NDArray[Any]]) -> None:
    instance = build.load(zipped, build.config(declared("[ 3 ]")))
    results = instance.execute({"X": iris[0][:1]})
    assert results["output_label"].tolist() == [b"setosa"]
    assert results["output_probability"].shape == (1, 3)
    assert results["output_probability"].argmax() == 0


def test_explicit_config_with_the_wrong_number_of_classes(zipped: ModelFiles) -> None:
    with pytest.raises(ConfigError, match=r"tensor 'output_probability'.*\(shape \[-1,3\]\).*write \[3\] in dims"):
        build.load(zipped, build.config(declared("[ 2 ]")))


def test_label_alone(zipped: ModelFiles, iris: tuple[NDArray[Any], NDArray[Any]]) -> None:
    text = "max_batch_size: 8" + build.tensors("input", ("X", "FP32", "[ 4 ]"))
    text += build.tensors("output", ("output_label", "STRING", "[ 1 ] reshape { shape: [ ] }"))
    results = build.load(zipped, build.config(text)).execute({"X": iris[0][:2]})
    assert {name: array.tolist() for name, array in results.items()} == {"output_label": [b"setosa", b"setosa"]}


def test_one_warning_says_what_was_done_and_how_to_export(zipped: ModelFiles, caplog: pytest.LogCaptureFixture) -> None:
    backend = OnnxBackend()
    with caplog.at_level(logging.WARNING, "bident.onnx"):
        done = backend.complete(zipped, build.config())
        for _ in range(2):
            assert backend.load(zipped, done, Device())
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1
    assert "model 'm': output 'output_probability' was a ZipMap" in messages[0]
    assert "FP32 tensor [-1,3]" in messages[0]
    assert "class order: setosa, versicolor, virginica" in messages[0]
    assert "options={'zipmap': False}" in messages[0]


def test_a_changed_file_is_rewritten_again(zipped: ModelFiles, iris: tuple[NDArray[Any], NDArray[Any]]) -> None:
    from sklearn.linear_model import LogisticRegression

    backend = OnnxBackend()
    assert backend.complete(zipped, build.config()).outputs["output_probability"].dims == (3,)
    two = LogisticRegression().fit(iris[0], iris[1] > 0)
    build.folder(zipped.directory.parent, skl2onnx.to_onnx(two, iris[0][:1]))
    assert backend.complete(zipped, build.config()).outputs["output_probability"].dims == (2,)


def test_rewritten_models_kept_are_bounded(tmp_path: Path, zipped: ModelFiles) -> None:
    content = (zipped.version_directory / "model.onnx").read_bytes()
    backend = OnnxBackend()
    for number in range(12):
        backend.complete(build.folder(tmp_path / str(number), content), build.config())
    assert len(backend._rewritten) == 8


def lightgbm_style(labels: list[int]) -> onnx.ModelProto:
    """As onnxmltools writes LightGBM: the label declared ``[1]`` whatever the batch, an old IR, no ``ai.onnx``."""
    ensemble = build.node(
        "TreeEnsembleClassifier",
        ["x"],
        ["label", "table"],
        domain="ai.onnx.ml",
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0],
        nodes_values=[0.5, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        class_treeids=[0, 0],
        class_nodeids=[1, 2],
        class_ids=[0, 2],
        class_weights=[1.0, 1.0],
        classlabels_int64s=labels,
        post_transform="NONE",
    )
    mapped = build.node("ZipMap", ["table"], ["probabilities"], domain="ai.onnx.ml", classlabels_int64s=labels)
    table = onnx.helper.make_map_type_proto(
        TensorProto.INT64, onnx.helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    )
    graph = onnx.helper.make_graph(
        [ensemble, mapped],
        "g",
        [build.value("x", TensorProto.FLOAT, [None, 4])],
        [
            build.value("label", TensorProto.INT64, [1]),
            onnx.helper.make_value_info("probabilities", onnx.helper.make_sequence_type_proto(table)),
        ],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("ai.onnx.ml", 1)], ir_version=4)


def test_lightgbm_style_label_batches(tmp_path: Path) -> None:
    files = build.folder(tmp_path, lightgbm_style([10, 20, 30]))
    done = build.complete(files, build.config())
    assert done.max_batch_size == 4
    assert done.outputs["probabilities"].dims == (3,)
    results = build.load(files, done).execute({"x": np.array([[0, 0, 0, 0], [1, 0, 0, 0]], np.float32)})
    assert results["label"].tolist() == [10, 30]
    assert results["probabilities"].tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]


def test_lightgbm_itself(tmp_path: Path, iris: tuple[NDArray[Any], NDArray[Any]]) -> None:
    import lightgbm
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    classifier = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1).fit(iris[0], NAMES[iris[1]])
    network = onnxmltools.convert_lightgbm(classifier, initial_types=[("x", FloatTensorType([None, 4]))])
    files = build.folder(tmp_path, network)
    results = build.load(files, build.complete(files, build.config())).execute({"x": iris[0]})
    assert [label.decode() for label in results["label"].tolist()] == classifier.predict(iris[0]).tolist()
    np.testing.assert_allclose(results["probabilities"], classifier.predict_proba(iris[0]), atol=1e-5)


def test_a_model_without_zipmap_is_left_alone(tmp_path: Path) -> None:
    files = build.folder(tmp_path, build.matmul())
    assert without_zipmap(files.version_directory / "model.onnx") is None
