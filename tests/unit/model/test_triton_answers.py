"""Configs that a real Triton 2.51 loaded, and what it then answered on ``/v2/models/X/config``."""

import json
from pathlib import Path

import pytest
from google.protobuf import text_format

from bident.errors import ConfigError
from bident.model import autofill, normalise, pbtxt, validate
from bident.model.config import ModelConfig
from bident.model.proto import pb

DATA = Path(__file__).parent / "data"
ANSWERS = {case["model"]: case for case in json.loads((DATA / "triton_2_51_answers.json").read_text("utf-8"))}
REFUSALS = {case["model"]: case for case in json.loads((DATA / "triton_2_51_refusals.json").read_text("utf-8"))}

NEWER_THAN_2_51 = {"max_inflight_requests"}
"""Fields of the current proto that 2.51 does not know, and therefore does not show."""

MAPS = {"input_map", "output_map", "parameters", "metric_tags", "cc_model_filenames", "priority_queue_policy", "inputs"}
"""Fields whose keys Triton shows in the order of a hash, which means nothing."""


def complete(name, config, tmp_path):
    """The whole way of a config, from its text to the message that is served."""
    version = tmp_path / name / "1"
    version.mkdir(parents=True)
    if "ensemble" not in config:
        (version / "model.py").touch()
    proto = pbtxt.parse(config.encode(), f"{name}/config.pbtxt")
    autofill.fill_backend(proto, version.parent, [1])
    normalise.apply(proto, default_instance_count=1)
    validate.check(proto, f"{name}/config.pbtxt")
    return proto


def in_order(tree):
    """``tree`` with its objects as lists of pairs, so that a comparison sees the order of keys."""
    if isinstance(tree, list):
        return [in_order(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    pairs = [(key, in_order(value)) for key, value in tree.items() if key not in NEWER_THAN_2_51]
    return [(key, sorted(value) if key in MAPS and isinstance(value, list) else value) for key, value in pairs]


@pytest.mark.parametrize("name", ANSWERS)
def test_config_is_shown_as_triton_shows_it(name, tmp_path):
    proto = complete(name, ANSWERS[name]["config"] or "", tmp_path)
    assert in_order(pbtxt.to_dict(proto)) == in_order(json.loads(ANSWERS[name]["answer"]))


@pytest.mark.parametrize("name", ANSWERS)
def test_the_answer_can_be_read_back(name, tmp_path):
    proto = complete(name, ANSWERS[name]["config"] or "", tmp_path)
    assert pbtxt.parse_json(ANSWERS[name]["answer"], "answer") == proto
    assert pbtxt.parse(text_format.MessageToString(proto).encode(), "text") == proto
    assert ModelConfig.from_proto(proto).name == name


def test_numbers_are_written_as_triton_writes_them(tmp_path):
    """To the byte: no '.0' on whole floats, 64-bit numbers bare, the shortest form of 32-bit floats."""
    for name in ("sequence_direct", "sequence_oldest", "sequence_state"):
        shown = pbtxt.to_dict(complete(name, ANSWERS[name]["config"], tmp_path))
        assert json.dumps(shown, separators=(",", ":")) == ANSWERS[name]["answer"]


@pytest.mark.parametrize("name", REFUSALS)
def test_what_triton_refuses_is_refused_with_its_words(name, tmp_path):
    with pytest.raises(ConfigError) as refused:
        complete(name, REFUSALS[name]["config"], tmp_path)
    message = refused.value.message
    assert REFUSALS[name]["reason"] in message
    assert f"{name}/config.pbtxt" in message
    cure = message.removeprefix(REFUSALS[name]["reason"]).split(" (in ")[0]
    assert len(cure) > 4, "no cure is given"


def test_the_fixture_covers_what_it_should():
    shown = {key for case in ANSWERS.values() for key in json.loads(case["answer"])}
    assert {field.name for field in pb.ModelConfig.DESCRIPTOR.fields} - shown == {
        "model_repository_agents",
        "model_metrics",
    }
    assert len(REFUSALS) > 50
