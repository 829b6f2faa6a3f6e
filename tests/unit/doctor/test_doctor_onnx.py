"""Pitfalls of ONNX models: each is made, named and, where that is promised, cured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import skl2onnx
import sklearn.datasets
from onnx import TensorProto, external_data_helper, helper, numpy_helper
from sklearn.linear_model import LogisticRegression

from bident.doctor.check import Weight
from bident.errors import ConfigError
from bident.model import pbtxt
from tests.unit.doctor.ward import X_TO_Y, answer, cure, identity_onnx, load, only_seen, onnx_folder, put, seen

IRIS = """
# A classifier of flowers.
backend: "onnxruntime"
max_batch_size: 8
input [ { name: "X" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [
  {
    name: "output_label"
    data_type: TYPE_INT64
    dims: [ 1 ]  # one per row
  },
  { name: "output_probability" data_type: TYPE_FP32 dims: [ 3 ] }
]
"""


@pytest.fixture(scope="module")
def iris() -> tuple[np.ndarray, bytes, np.ndarray]:
    """Rows, a classifier with ZipMap, and the probabilities that scikit-learn gives."""
    features, classes = sklearn.datasets.load_iris(return_X_y=True)
    rows = features.astype(np.float32)
    model = LogisticRegression(max_iter=200).fit(rows, classes)
    return rows, skl2onnx.to_onnx(model, rows[:1]).SerializeToString(), model.predict_proba(rows)


def test_a_zipmap_without_configuration_breaks_no_rule(
    tmp_path: Path, iris: tuple[np.ndarray, bytes, np.ndarray]
) -> None:
    load(onnx_folder(tmp_path, "iris", None, iris[1]))
    assert [finding.check for finding in seen(tmp_path)] == ["onnx-zipmap"]


def test_zipmap_and_scalar_label_are_cured(tmp_path: Path, iris: tuple[np.ndarray, bytes, np.ndarray]) -> None:
    rows, content, probabilities = iris
    folder = onnx_folder(tmp_path, "iris", IRIS, content)
    assert only_seen(tmp_path, "onnx-zipmap").weight is Weight.RISK  # Bident serves it all the same
    assert only_seen(tmp_path, "onnx-zipmap", "triton:25.05").weight is Weight.BROKEN
    assert "reshape { shape: [ ] }" in only_seen(tmp_path, "scalar-label").cure
    with pytest.raises(ConfigError, match="dimensions"):
        load(folder)

    assert cure(tmp_path, "triton:25.05") == []

    made = onnx.load(folder / "1" / "model.onnx")
    assert all(output.type.HasField("tensor_type") for output in made.graph.output)
    assert not any(node.op_type == "ZipMap" for node in made.graph.node)
    answers = answer(folder, {"X": rows})
    np.testing.assert_allclose(answers["output_probability"], probabilities, atol=1e-5)
    assert (folder / "1" / "model.onnx.bak").read_bytes() == content
    text = (folder / "config.pbtxt").read_text()
    assert text.startswith("\n# A classifier of flowers.\n")
    assert "    dims: [ 1 ]  # one per row\n    reshape { shape: [ ] }\n" in text


@pytest.mark.parametrize(("wrong", "right"), [("Y", "y"), ("output_1", "y")])
def test_a_name_that_the_file_has_not_is_corrected(tmp_path: Path, wrong: str, right: str) -> None:
    folder = onnx_folder(tmp_path, config=X_TO_Y.replace('"y"', f'"{wrong}"'))
    finding = only_seen(tmp_path, "tensor-names")
    assert f"output '{wrong}'" in finding.seen
    assert f"did you mean '{right}'?" in finding.seen
    assert cure(tmp_path) == []
    load(folder)


@pytest.mark.parametrize("name", ['y" dims: 7 name: "', "y\\", "y\n{", "ü坏😀"])
def test_a_name_of_the_file_can_hold_anything(tmp_path: Path, name: str) -> None:
    model = identity_onnx()
    model.graph.output[0].name = model.graph.node[0].output[0] = name
    folder = onnx_folder(tmp_path, config=X_TO_Y, model=model)
    assert only_seen(tmp_path, "tensor-names").fix is not None
    cure(tmp_path)
    (output,) = pbtxt.parse((folder / "config.pbtxt").read_bytes(), "").output
    assert (output.name, list(output.dims)) == (name, [3])


def test_names_beyond_recognition_are_listed(tmp_path: Path) -> None:
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in ("data", "left", "right")]
    nodes = [helper.make_node("Identity", ["data"], [name]) for name in ("left", "right")]
    graph = helper.make_graph(nodes, "g", tensors[:1], tensors[1:])
    onnx_folder(tmp_path, config=X_TO_Y, model=helper.make_model(graph, ir_version=10))
    named, listed = seen(tmp_path, "tensor-names")
    assert "did you mean 'data'?" in named.seen
    assert listed.fix is None
    assert "'left', 'right'" in listed.seen


def test_datatype_and_dims_are_those_of_the_file(tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path, config=X_TO_Y.replace("FP32 dims: [ 3 ]", "INT64 dims: [ 5, 1 ]", 1))
    assert "TYPE_FP32 in model.onnx, and TYPE_INT64" in only_seen(tmp_path, "tensor-datatypes").seen
    assert only_seen(tmp_path, "tensor-shapes").cure == "write dims: [3]"
    assert cure(tmp_path) == []
    load(folder)


def test_dims_that_repeat_the_batch_dimension(tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path, config=X_TO_Y.replace("[ 3 ]", "[ -1, 3 ]"))
    assert len(seen(tmp_path, "tensor-shapes")) == 2
    assert cure(tmp_path) == []
    load(folder)


def test_a_free_dimension_where_the_file_has_a_fixed_one_matters_to_triton_alone(tmp_path: Path) -> None:
    onnx_folder(
        tmp_path, config=X_TO_Y.replace('"y" data_type: TYPE_FP32 dims: [ 3 ]', '"y" data_type: TYPE_FP32 dims: [ -1 ]')
    )
    assert seen(tmp_path) == []
    assert "NVIDIA Triton refuses -1" in only_seen(tmp_path, "tensor-shapes", "triton:25.05").seen
    assert cure(tmp_path, "triton:25.05") == []


def test_batches_for_a_model_that_fixes_its_first_dimension(tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path, config=f"{X_TO_Y}dynamic_batching {{ }}\n", model=identity_onnx(1, 3))
    finding = only_seen(tmp_path, "batch-dimension")
    assert "max_batch_size is 4" in finding.seen
    assert "[1,3]" in finding.seen
    assert cure(tmp_path) == []
    assert load(folder).config.max_batch_size == 0
    assert list(load(folder).config.inputs["x"].dims) == [1, 3]


def with_external_weight(folder: Path) -> None:
    """``y`` = ``x`` + ``w``, whose weight lies in ``weights.bin``."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in "xy")
    weight = numpy_helper.from_array(np.ones(3, np.float32), "w")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    external_data_helper.convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    onnx.save(model, folder / "1" / "model.onnx")


def test_weights_that_were_left_behind(tmp_path: Path) -> None:
    folder = onnx_folder(tmp_path)
    with_external_weight(folder)
    assert seen(tmp_path) == []
    (folder / "1" / "weights.bin").rename(tmp_path / "elsewhere.txt")
    finding = only_seen(tmp_path, "onnx-weight-files")
    assert "'weights.bin'" in finding.seen
    put(folder, "1/weights.bin", b"123")
    assert "cut short (3 bytes, 12 needed)" in only_seen(tmp_path, "onnx-weight-files").seen


def test_opset_and_ir_version_of_a_release(tmp_path: Path) -> None:
    model = identity_onnx()
    model.ir_version = 11
    folder = onnx_folder(tmp_path, model=model)
    assert seen(tmp_path, target="triton:25.09") == []
    finding = only_seen(tmp_path, "onnx-version", "triton:25.05")
    assert "IR version 11 and opset 21; ONNX Runtime 1.22 of Triton 25.05 takes IR version 10" in finding.seen
    assert cure(tmp_path, "triton:25.05") == []
    assert onnx.load(folder / "1" / "model.onnx").ir_version == 10
    load(folder)

    model.opset_import[0].version = 23
    onnx_folder(tmp_path, model=model)
    finding = only_seen(tmp_path, "onnx-version", "triton:25.05")
    assert finding.fix is None  # what another opset means for each operator is the exporter's to know
    assert "opset_version=22" in finding.cure


def test_an_ir_version_is_not_lowered_below_a_type_that_the_model_has(tmp_path: Path) -> None:
    model = identity_onnx(kind=TensorProto.FLOAT4E2M1)
    model.ir_version = 11
    onnx_folder(tmp_path, config=None, model=model)
    assert only_seen(tmp_path, "onnx-version", "triton:25.05").fix is None
