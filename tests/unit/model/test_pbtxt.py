import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bident.errors import ConfigError
from bident.model import pbtxt
from bident.model.proto import pb

TENSOR = 'input { name: "IN" data_type: TYPE_FP32 dims: 1 }'


def refusal(text):
    with pytest.raises(ConfigError) as refused:
        pbtxt.parse(text if isinstance(text, bytes) else text.encode(), "repo/m/config.pbtxt")
    assert refused.value.message.startswith("failed to read text proto from repo/m/config.pbtxt: ")
    return refused.value.message


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffmax_batch_size: 8",
        "# комментарий € 😀\r\nmax_batch_size: 8\r\n",
        "max_batch_size: 8,",
        "max_batch_size: 0x8;",
        "name: 'm' max_batch_size: 8 backend: 'on' \"nx\"",
    ],
)
def test_every_spelling_of_text_format_is_read(text):
    assert pbtxt.parse(text.encode(), "x").max_batch_size == 8


def test_lists_angles_and_repetition_mean_the_same():
    spellings = [
        'input [ { name: "A" dims: [ 3, 4 ] }, { name: "B" } ]',
        'input { name: "A" dims: 3 dims: 4 } input: { name: "B" }',
        "input < name: 'A' dims: [3] dims: [4] > input < name: 'B' >",
    ]
    first, *others = [pbtxt.parse(text.encode(), "x") for text in spellings]
    assert all(other == first for other in others)


def test_a_latin_1_letter_for_a_word_is_refused_with_its_line():
    with pytest.raises(ConfigError, match="2:1: a byte that is no UTF-8"):
        pbtxt.parse(b"# \xe9\ninput { data_type:\xceTYPE_STRING }", "x")


def test_a_latin_1_comment_is_a_comment():
    assert pbtxt.parse(b"# caf\xe9\nmax_batch_size: 8", "x").max_batch_size == 8


@pytest.mark.parametrize(
    ("text", "position", "fragments"),
    [
        ("\nmax_bach_size: 8", "2:1", ["max_bach_size", "did you mean 'max_batch_size'?"]),
        ('input { name: "IN" data_typ: TYPE_FP32 }', "1:20", ["did you mean 'data_type'?"]),
        ("preferred_batch_size: 8", "1:1", ["belongs inside 'dynamic_batching'"]),
        ("dynamic_batching { max_batch_size: 8 }", "1:20", ["belongs at the top level"]),
        ("zzz: 1", "1:1", ['no field named "zzz"', "default_model_filename"]),
        ("input { data_type: FP32 }", "1:20", ["did you mean 'TYPE_FP32'?", "data_type"]),
        ("input { data_type: TYPE_FP31 }", "1:20", ["did you mean 'TYPE_FP32'?"]),
        ("max_batch_size: ${triton_max_batch_size}", "1:17", ["'${triton_max_batch_size}'", "max_batch_size"]),
        ("max_batch_size: 08", "1:17", ["max_batch_size", "write a plain number, such as 8"]),
        (f"{TENSOR}\ninput [ {{ name: 'x' }}, ]", "2:24", ["remove the comma before ']'"]),
        ("max_batch_size: 1 max_batch_size: 2", "1:35", ["max_batch_size", "keep one of the two"]),
        ("dynamic_batching {} sequence_batching {}", "1:21", ["keep one of the two"]),
        ("backend: onnxruntime", "1:10", ["backend", 'put it in quotes: "onnxruntime"']),
        ('name: "\\377"', "1:13", ["name", "write the text in UTF-8"]),
        ("name: 'm", "1:7", ["name", "close the string"]),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0", "1:1", ["Git LFS pointer", "git lfs pull"]),
        ('{"max_batch_size": 8}', "1:1", ["the file is JSON"]),
        ("max_batch_size: 8".encode("utf-16"), "1:1", ["UTF-16", "save it as UTF-8"]),
        (b'name: "\xff"', "1:7", ["name"]),
        (b"name: ${\xff}", "1:7", ["name", "was never filled in"]),
    ],
)
def test_a_refusal_names_place_field_and_cure(text, position, fragments):
    message = refusal(text)
    assert f": {position}: " in message
    for fragment in fragments:
        assert fragment in message


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))))
def test_any_bytes_are_read_or_refused(text):
    try:
        pbtxt.parse(text, "x")
    except ConfigError as refused:
        refused.message.encode()


WORDS = [
    "input",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    '"x"',
    "name",
    "dims",
    "-1",
    "8",
    "data_type",
    "TYPE_FP32",
    "${a}",
    "\n",
]


@given(st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join))
def test_any_words_are_read_or_refused(text):
    with contextlib.suppress(ConfigError):
        pbtxt.parse(text.encode(), "x")


def test_json_takes_enum_words_in_any_case_as_triton_does():
    text = '{"input":[{"name":"A","dataType":"type_fp32","dims":["1",-1]}],"instance_group":[{"kind":"kind_cpu"}]}'
    proto = pbtxt.parse_json(text, "x")
    assert proto.input[0].data_type == pb.TYPE_FP32
    assert list(proto.input[0].dims) == [1, -1]
    assert proto.instance_group[0].kind == pb.ModelInstanceGroup.KIND_CPU


def test_json_enums_inside_maps_are_found():
    text = '{"model_warmup":[{"inputs":{"A":{"data_type":"type_int8"}}}],"metric_tags":{"a":"b"}}'
    assert pbtxt.parse_json(text, "x").model_warmup[0].inputs["A"].data_type == pb.TYPE_INT8


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("not json", "Expecting value"),
        ("", "Expecting value"),
        ("[]", "expected a JSON object"),
        ("null", "expected a JSON object"),
        ('{"max_bach_size":2}', "did you mean 'max_batch_size'?"),
        ('{"max_batch_size":"x"}', "max_batch_size"),
        ('{"max_batch_size":1e400}', "max_batch_size"),
        ('{"input":[{"data_type":"FP32"}]}', "TYPE_FP32"),
        ('{"input":3}', "input"),
        ('{"name":"\\ud800"}', ""),
        ("[" * 100_000, ""),
        ('{"max_batch_size":' + "1" * 5000 + "}", ""),
    ],
)
def test_json_that_is_no_config_is_refused(text, fragment):
    with pytest.raises(ConfigError, match=r"^Invalid config override: ") as refused:
        pbtxt.parse_json(text, "load parameter 'config'")
    assert fragment in refused.value.message
    assert "load parameter 'config'" in refused.value.message


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["input", "parameters", "name", "x"]), inner),
        max_leaves=8,
    )
)
def test_any_json_is_read_or_refused(tree):
    try:
        pbtxt.parse_json(json.dumps(tree), "x")
    except ConfigError as refused:
        refused.message.encode()


def test_what_json_cannot_say_is_said_in_words():
    metrics = (
        "model_metrics { metric_control { metric_identifier { family: 'x' } histogram_options { buckets: [%s] } } }"
    )
    shown = pbtxt.to_dict(pbtxt.parse((metrics % "nan, inf, -inf, 2.5, 1e21, 3").encode(), "x"))
    buckets = shown["model_metrics"]["metric_control"][0]["histogram_options"]["buckets"]
    assert json.dumps(buckets) == '["NaN", "Infinity", "-Infinity", 2.5, 1e+21, 3]'


def test_unknown_enum_numbers_are_shown_as_numbers():
    assert pbtxt.to_dict(pbtxt.parse(b"input { data_type: 99 }", "x"))["input"][0]["data_type"] == 99


def test_maps_are_shown_sorted():
    proto = pbtxt.parse(b'parameters { key: "b" } parameters { key: "a" } parameters { key: "c" }', "x")
    assert list(pbtxt.to_dict(proto)["parameters"]) == ["a", "b", "c"]
