"""Checks beyond those that ``test_triton_answers`` compares with a real Triton."""

import re
import time

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
        (
            "model_metrics { metric_control { metric_identifier { family: 'x' } "
            "histogram_options { buckets: [2, 1] } } }",
            "the 'buckets' of 'x' must be finite and rise, got [2.0, 1.0]",
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
        ("key: 'IN' value { dims: 4 zero_data: true }", "'IN' of warmup sample 'w' must specify 'data_type'"),
        ("key: 'IN' value { data_type: TYPE_FP32 dims: -1 zero_data: true }", "all variable-size dimensions are spec"),
        ("key: 'IN' value { data_type: TYPE_FP32 dims: 4 }", "to have input_data_type set"),
        ("key: 'IN' value { dims: 4 input_data_file: '../../x' }", "must stay within model directory"),
    ],
)
def test_warmup_samples_must_say_what_is_sent(inputs, fragment):
    with pytest.raises(ConfigError, match=fragment):
        check(f"model_warmup {{ name: 'w' batch_size: 1 inputs {{ {inputs} }} }}")
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
        (
            [("a", "In", "OUT")],
            "ensemble input 'IN' for ensemble m' is not used; step 0 ('a') takes 'In' for its input 'i0', which "
            "nothing gives; did you mean 'IN'?",
        ),
        (
            [("a", "y", "x"), ("b", "x", "y"), ("c", "y", "OUT")],
            "ensemble input 'IN' for ensemble m' is not used; step 0 ('a') and step 1 ('b') and step 2 ('c') wait for "
            "each other: let one of them take 'IN'",
        ),
        ([("a", "OUT", "OUT")], "is not used; step 0 ('a') waits for itself: let one of them take 'IN'"),
        ([("a", "IN", "z"), ("c", "z OUT", "OUT")], "output 'OUT' for ensemble 'm' is not written; its steps wait"),
        ([("a", "IN", "OUT", "")], "depends on 'a' whose required version 0 is not loaded; write model_version: -1"),
    ],
)
def test_broken_flow_is_refused(steps, fragment):
    with pytest.raises(ConfigError) as refused:
        ensemble(*steps)
    assert fragment in refused.value.message


def test_an_ensemble_that_does_not_say_so_is_told_to():
    with pytest.raises(ConfigError, match=r"unexpected platform type '' for m; write platform: \"ensemble\""):
        validate.check(pbtxt.parse(f"name: 'm' ensemble_scheduling {{ {step('a', 'IN', 'OUT')} }}".encode(), "m"), "m")


@pytest.mark.parametrize("side", ["input", "output"])
def test_as_many_tensors_as_are_allowed_are_checked_at_once(side):
    def tensors(count):
        return "".join(f'{side} {{ name: "{n}" data_type: TYPE_FP32 dims: 1 }}' for n in range(count))

    started = time.process_time()
    check("", tensors(10_000))
    assert time.process_time() - started < 2, "the time grows with the square"
    with pytest.raises(ConfigError, match=f"model m declares 10001 {side}s; declare at most 10000"):
        check("", tensors(10_001))


def tensor(dims, reshape=0):
    shape = f"reshape {{ shape: {[1] * reshape} }}" if reshape else ""
    return f'input {{ name: "IN" data_type: TYPE_FP32 dims: {[1] * dims} {shape} }}'


@pytest.mark.parametrize(("batch", "most"), [(0, 64), (1, 63)])
def test_a_shape_has_as_many_dimensions_as_an_array_can_have(batch, most):
    text = f"max_batch_size: {batch}"
    check(text, tensor(most, most))
    with pytest.raises(ConfigError, match=f"dims has {most + 1} dimensions for m; write at most {most}"):
        check(text, tensor(most + 1))
    with pytest.raises(ConfigError, match=f"reshape has {most + 1} dimensions for m; write at most {most}"):
        check(text, tensor(1, most + 1))


def test_instances_are_bounded_over_all_groups():
    check("instance_group { count: 999 } instance_group { count: 1 }")
    with pytest.raises(ConfigError, match=r"ask for 1001 instances; write a count of at most 1000 in all"):
        check("instance_group { count: 1000 } instance_group { count: 1 }")
    with pytest.raises(ConfigError, match="ask for 2147483647 instances"):
        check("instance_group { count: 2147483647 }")


@pytest.mark.parametrize(
    ("keys", "fragment"),
    [
        (["_name__"], "metric tag '_name__' of m would be the label '__name__', which Prometheus reserves"),
        (["-x"], "metric tag '-x' of m would be the label '__x'"),
        (["a.b", "a-b"], "metric tags 'a-b' and 'a.b' of m would both be the label '_a_b'"),
        (["xж", "xы"], "both be the label '_x_'"),
    ],
)
def test_metric_tags_that_a_scraper_could_not_tell_apart_are_refused(keys, fragment):
    with pytest.raises(ConfigError, match=re.escape(fragment)):
        check("".join(f'metric_tags {{ key: "{key}" value: "v" }}' for key in keys))


def test_metric_tags_with_characters_that_labels_lack_are_taken():
    check('metric_tags { key: "my-team.x" value: "1" } metric_tags { key: "my" value: "2" }')
