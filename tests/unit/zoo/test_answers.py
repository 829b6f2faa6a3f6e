"""Every sample model answers its question through plain ONNX Runtime or XGBoost, and its config fits its file."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from bident.errors import ServeError
from bident.zoo import RECIPES

IN_ALL = [name for name, recipe in RECIPES.items() if recipe.in_all]
ONNX_RECIPES = [recipe.name for recipe in RECIPES.values() if recipe.backend == "onnxruntime"]
EXPECTED = {
    "fraud_xgb": "class 1",
    "iris_sklearn": "setosa 1.0000",
    "iris_zipmap": "setosa 1.0000",
    "imagenet_lite0": "Egyptian cat 38%",
    "yolo_postprocess": "person 90%, dog 70%",
    "classify": "tiger cat 38%",
    "classify_postprocess": "Egyptian cat 90%",
    "classify_resnet18_postprocess": "Egyptian cat 90%",
}
# The articles' contracts (4.5 of the one, 3.2 of the other): names, types and dims, and the largest batch.
CONTRACT = {
    "fraud_xgb": (8192, [("input__0", "TYPE_FP32", [32])], [("output__0", "TYPE_FP32", [1])]),
    "iris_sklearn": (
        128,
        [("X", "TYPE_FP32", [4])],
        [("label", "TYPE_INT64", [1]), ("probabilities", "TYPE_FP32", [3])],
    ),
    "resnet18": (16, [("data", "TYPE_FP32", [3, 224, 224])], [("resnetv15_dense0_fwd", "TYPE_FP32", [1000])]),
    "yolov8n": (8, [("images", "TYPE_FP32", [3, 640, 640])], [("output0", "TYPE_FP32", [84, 8400])]),
    "text_classifier": (
        8,
        [("TEXT", "TYPE_STRING", [1])],
        [("LABEL", "TYPE_STRING", [1]), ("SCORE", "TYPE_FP32", [1])],
    ),
}


def questions(name, repository):
    recipe = RECIPES[name]
    facts = recipe.built(repository)
    assert facts is not None
    return recipe.questions(facts)


@pytest.mark.parametrize("name", IN_ALL)
def test_the_plain_runtime_gives_the_right_answer(name, repository, plain):
    for question in questions(name, repository):
        answer = question.check(plain(repository / name, question.inputs()))
        assert answer == EXPECTED.get(name, answer)


@pytest.mark.parametrize("name", IN_ALL)
def test_a_different_answer_is_wrong(name, repository, plain):
    for question in questions(name, repository):
        answer = plain(repository / name, question.inputs())
        for output, values in answer.items():
            other = np.full(values.shape, b"other", object) if values.dtype == object else 1 - values
            altered = {**answer, output: other}
            with pytest.raises(ServeError, match="wrong answer"):
                question.check(altered)


@pytest.mark.parametrize("name", IN_ALL)
def test_a_missing_or_misshapen_output_is_wrong(name, repository, plain):
    for question in questions(name, repository):
        answer = plain(repository / name, question.inputs())
        with pytest.raises(ServeError, match="an output"):
            question.check({})
        with pytest.raises(ServeError, match="of shape"):
            question.check({output: values[..., None] for output, values in answer.items()})


@pytest.mark.parametrize("name", CONTRACT)
def test_the_config_is_the_articles(name, repository, config_of):
    config = config_of(repository / name)
    data_type = type(config.input[0]).DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    declared = [
        [(tensor.name, data_type[tensor.data_type].name, list(tensor.dims)) for tensor in tensors]
        for tensors in (config.input, config.output)
    ]
    assert (config.max_batch_size, *declared) == CONTRACT[name]
    assert config.backend == RECIPES[name].backend


@pytest.mark.parametrize("name", [recipe.name for recipe in RECIPES.values() if recipe.members])
def test_an_ensembles_steps_are_its_recipes_members(name, repository, config_of):
    config = config_of(repository / name)
    assert config.platform == RECIPES[name].backend == "ensemble"
    steps = [step.model_name for step in config.ensemble_scheduling.step]
    assert steps == [member.name for member in RECIPES[name].members]
    for step in config.ensemble_scheduling.step:
        member = config_of(repository / step.model_name)
        assert set(step.input_map) == {declared.name for declared in member.input}
        assert set(step.output_map) == {declared.name for declared in member.output}


def test_fraud_keeps_its_class_and_threshold_parameters(repository, config_of):
    parameters = config_of(repository / "fraud_xgb").parameters
    assert {key: value.string_value for key, value in parameters.items()} == {
        "model_type": "xgboost_json",
        "is_classifier": "true",
        "output_class": "true",
        "threshold": "0.5",
    }


@pytest.mark.parametrize("name", ONNX_RECIPES)
def test_the_config_names_the_files_inputs_and_outputs(name, repository, config_of):
    graph = onnx.load(repository / name / "1" / "model.onnx").graph
    config = config_of(repository / name)
    assert [tensor.name for tensor in config.input] == [value.name for value in graph.input]
    assert [tensor.name for tensor in config.output] == [value.name for value in graph.output]


def test_iris_zipmap_really_ends_in_a_zipmap(repository):
    graph = onnx.load(repository / "iris_zipmap" / "1" / "model.onnx").graph
    assert "ZipMap" in [node.op_type for node in graph.node]
    assert "ZipMap" not in [
        node.op_type for node in onnx.load(repository / "iris_sklearn" / "1" / "model.onnx").graph.node
    ]


@pytest.mark.parametrize("name", IN_ALL)
def test_label_files_exist_and_have_a_line_for_each_class(name, repository, config_of):
    for declared in config_of(repository / name).output:
        if declared.label_filename:
            lines = (repository / name / declared.label_filename).read_text(encoding="utf-8").splitlines()
            assert len(lines) == declared.dims[-1]
            assert len(set(lines)) >= len(lines) - 2  # ImageNet names two of its classes alike, twice
            assert all(lines)


@pytest.mark.parametrize("name", ["resnet18", "yolov8n"])
def test_synthetic_weights_are_called_synthetic_everywhere(name, repository, config_of):
    facts = RECIPES[name].built(repository)
    assert facts is not None
    assert facts.synthetic
    assert "no network in this test" in facts.origin
    mark = config_of(repository / name).parameters["synthetic_weights"].string_value
    assert mark == "true: seeded random weights, not a trained model"
    metadata = onnx.load(repository / name / "1" / "model.onnx").metadata_props
    assert {entry.key: entry.value for entry in metadata}["synthetic_weights"] == mark


@pytest.mark.parametrize(("name", "member"), [("yolo_detect", "yolov8n"), ("classify_resnet18", "resnet18")])
def test_an_ensemble_over_synthetic_weights_says_so(name, member, repository, config_of):
    facts = RECIPES[name].built(repository)
    assert facts is not None
    assert facts.synthetic
    assert "no network in this test" in facts.origin
    mark = config_of(repository / name).parameters["synthetic_weights"].string_value
    assert mark == f"true: the weights of its step '{member}' are seeded random numbers"


@pytest.mark.parametrize(
    "name", ["fraud_xgb", "iris_sklearn", "iris_zipmap", "imagenet_lite0", "classify", "text_classifier"]
)
def test_real_weights_are_not_called_synthetic(name, repository, config_of):
    facts = RECIPES[name].built(repository)
    assert facts is not None
    assert not facts.synthetic
    assert "synthetic_weights" not in config_of(repository / name).parameters


@pytest.mark.parametrize("name", ["resnet18", "imagenet_lite0"])
def test_rows_of_a_batch_do_not_depend_on_each_other(name, repository, plain):
    (question,) = questions(name, repository)
    inputs = {key: np.concatenate([value, value * 0.5, value]) for key, value in question.inputs().items()}
    (batch,) = plain(repository / name, inputs).values()
    (single,) = plain(repository / name, question.inputs()).values()
    np.testing.assert_allclose(batch[[0, 2]], np.concatenate([single, single]), rtol=1e-4, atol=1e-4)
