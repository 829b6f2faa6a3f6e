"""Checks beyond those that ``test_triton_answers`` compares with a real Triton."""

import pytest

from bident.errors import ConfigError
from bident.model import normalise, pbtxt, validate

TENSORS = 'input { name: "IN" data_type: TYPE_FP32 dims: 4 } output { name: "OUT" data_type: TYPE_FP32 dims: 4 }'


def check(text, tensors=TENSORS):
    proto = pbtxt.parse(f'name: "m" {tensors} {text}'.encode(), "m/config.pbtxt")
    if not (proto.backend or proto.platform):
        proto.backend = "python"
    normalise.apply(proto, 1)
    validate.check(proto, "m/config.pbtxt")


@pytest.mark.parametrize(
    "text",
    [
        "max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 8 ] }",
        'default_model_filename: "../shared.onnx"',
        'backend: "pytorch" platform: "torch_aoti"',
        "model_warmup { name: 'skipped' inputs { key: 'NO' value { } } }",
        "instance_group { kind: KIND_MODEL }",
    ],
)
def test_sound_configs_pass(text):
    check(text)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ('input { name: "IN" data_type: TYPE_FP32 dims: 4 }', "model input 'IN' is declared more than once"),
        ('output { name: "OUT" data_type: TYPE_FP32 dims: 4 }', "model output 'OUT' is declared more than once"),
        ('input { name: "X" data_type: 99 dims: 4 }', "model input 'X' must specify 'data_type'"),
        ('default_model_filename: "../../x"', "must stay within model directory"),
        ('default_model_filename: "/etc/passwd"', "must stay within model directory"),
        (
            'output { name: "O" data_type: TYPE_FP32 dims: 1 label_filename: "../x" }',
            "must stay within model directory",
        ),
        ('model_repository_agents { agents { name: "checksum" } }', "unable to find repo agent 'checksum'"),
        ('platform: "onnxruntime_onx"', "unexpected platform type 'onnxruntime_onx' for m; did you mean"),
        ("instance_group { kind: 9 }", "has unexpected kind 9"),
        ("sequence_batching { state { output_name: 'S' data_type: TYPE_FP32 } }", "must specify 'input_name'"),
        ("sequence_batching { state { input_name: 'S' output_name: 'T' } }", "must specify 'data_type'"),
        (
            "sequence_batching { state { input_name: 'S' output_name: 'T' data_type: TYPE_FP32 "
            "initial_state { data_file: '../../x' } } }",
            "must stay within model directory",
        ),
        ("sequence_batching { control_input { name: 'A' control { kind: 9 } } }", "unknown kind 9"),
        ("model_metrics { metric_control { } }", "metric control must specify 'metric_identifier'"),
        (
            "model_metrics { metric_control { metric_identifier { } } }",
            "metric identifier must specify non-empty 'family'",
        ),
        (
            "model_metrics { metric_control { metric_identifier { family: 'x' } } }",
            "metric control must specify 'histogram_options'",
        ),
        (
            "model_metrics { metric_control { metric_identifier { family: 'x' } histogram_options { } } }",
            "histogram options must specify non-empty 'buckets'",
        ),
    ],
)
def test_faults_are_refused(text, fragment):
    with pytest.raises(ConfigError) as refused:
        check(text)
    assert fragment in refused.value.message
    assert refused.value.message.endswith("(in m/config.pbtxt)")


@pytest.mark.parametrize(
    ("inputs", "fragment"),
    [
        ("key: 'NO' value { data_type: TYPE_FP32 dims: 4 zero_data: true }", "unknown input 'NO'; there is 'IN'"),
        ("key: 'IN' value { data_type: TYPE_FP32 dims: 4 }", "to have input_data_type set"),
        ("key: 'IN' value { dims: 4 input_data_file: '../../x' }", "must stay within model directory"),
    ],
)
def test_warmup_samples_must_be_whole_requests(inputs, fragment):
    with pytest.raises(ConfigError, match=fragment):
        check(f"model_warmup {{ name: 'w' batch_size: 1 inputs {{ {inputs} }} }}")
    with pytest.raises(ConfigError, match="lacks input 'IN'"):
        check("model_warmup { name: 'w' batch_size: 1 }")
    sample = "inputs { key: 'IN' value { data_type: TYPE_FP32 dims: 4 zero_data: true } }"
    with pytest.raises(ConfigError, match="write at most max_batch_size, 2"):
        check(f"max_batch_size: 2 model_warmup {{ name: 'w' batch_size: 3 {sample} }}")


def step(model, read, written, version="model_version: -1"):
    inputs = " ".join(f"input_map {{ key: 'i{index}' value: '{name}' }}" for index, name in enumerate(read.split()))
    return f"step {{ model_name: '{model}' {version} {inputs} output_map {{ key: 'o' value: '{written}' }} }}"


def ensemble(*steps):
    check('platform: "ensemble" ensemble_scheduling { ' + " ".join(step(*each) for each in steps) + " }")


def test_an_ensemble_may_list_its_steps_in_any_order():
    ensemble(("b", "mid", "OUT"), ("a", "IN", "mid"))


@pytest.mark.parametrize(
    ("steps", "fragment"),
    [
        ([("a", "IN", "x"), ("b", "y", "OUT")], "'y', is not connected"),
        ([("a", "IN", "mid"), ("b", "mdi", "OUT")], "did you mean 'mid'?"),
        ([("a", "IN", "OUT"), ("b", "y", "x"), ("c", "x", "y")], "ensemble tensor 'x' is unused"),
        ([("a", "IN", "IN")], "is an input of ensemble 'm' but step 0 writes it"),
        ([("a", "In", "OUT")], "ensemble input 'IN' for ensemble m' is not used; did you mean 'In'?"),
        ([("a", "IN", "z"), ("c", "z OUT", "OUT")], "output 'OUT' for ensemble 'm' is not written; its steps wait"),
        ([("a", "IN", "OUT", "")], "depends on 'a' whose required version 0 is not loaded; write model_version: -1"),
    ],
)
def test_broken_flow_is_refused(steps, fragment):
    with pytest.raises(ConfigError) as refused:
        ensemble(*steps)
    assert fragment in refused.value.message
