"""Ensembles against their members: what a real Triton 2.51 loaded, and its words for what it did not."""

import json
from pathlib import Path

import pytest

from bident.errors import ConfigError
from bident.model import normalise, pbtxt, validate
from bident.model.config import ModelConfig
from bident.model.validate_members import check_members

DATA = json.loads((Path(__file__).parent / "data" / "triton_2_51_ensembles.json").read_text("utf-8"))
CASES = {case["ensemble"]: case for case in DATA["ensembles"]}
LOADED = [name for name, case in CASES.items() if "reason" not in case]
REFUSED = [name for name, case in CASES.items() if "reason" in case]


def read(name, text):
    proto = pbtxt.parse(f'name: "{name}" {text}'.encode(), f"{name}/config.pbtxt")
    normalise.apply(proto, 1)
    validate.check(proto, f"{name}/config.pbtxt")
    return ModelConfig.from_proto(proto)


def config_of(name):
    return read(name, DATA["members"].get(name) or CASES[name]["config"])


def check(name):
    config = config_of(name)
    return check_members(config, [config_of(step.model) for step in config.steps], f"{name}/config.pbtxt")


def refusal(name):
    with pytest.raises(ConfigError) as caught:
        check(name)
    return caught.value.message


@pytest.mark.parametrize("name", LOADED)
def test_what_triton_loads_is_accepted_and_streams_when_triton_says_so(name):
    assert check(name) is CASES[name]["decoupled"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_triton_refuses_is_refused_with_its_words_and_a_cure(name):
    reason, message = CASES[name]["reason"], refusal(name)
    # Of a step that joins what cannot be joined, Triton names the model that names its output first.
    culprit = f"step of model '{name}'"
    if culprit in reason and culprit not in message:
        reason = reason.replace(culprit, "step of model 'sum'")
    assert message.startswith(f"{reason}; ")
    assert message.endswith(f" (in {name}/config.pbtxt)")


def test_the_fixture_covers_both_sides():
    assert len(LOADED) > 30
    assert len(REFUSED) > 12


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("v_shape", "'t' is output 'Y' of 'a4' in step 0 and input 'X' of 'a5' in step 1"),
        ("v_type", "'t' is output 'Y' of 'a4' in step 0 and input 'X' of 'd4' in step 1"),
        ("v_unknown_in", "step 0: there is 'X'"),
        ("v_unknown_out", "step 0: there is 'Y'"),
        ("v_unmapped", 'add input_map { key: "B" value: "<tensor>" } to step 0'),
        ("v_small", "write max_batch_size: 2 for the ensemble"),
        ("r_dec_join", "step 1 takes 'X' from the request and 't' from step 0 ('decb')"),
        ("r_dec_side", "the ensemble's answer takes 'Y' from step 0 ('dec') and 'Z' from the request"),
    ],
)
def test_the_cure_names_step_model_and_tensor(name, words):
    assert words in refusal(name)


MEMBER = """
backend: "x" max_batch_size: 8
input { name: "image" data_type: TYPE_FP32 dims: 4 }
output { name: "Y" data_type: TYPE_FP32 dims: 4 }
"""
RESHAPING = """
platform: "ensemble" max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: 4 } }
output { name: "Y" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: 4 } }
ensemble_scheduling {
  step {
    model_name: "m" model_version: -1
    input_map { key: "image" value: "X" }
    output_map { key: "Y" value: "Y" }
  }
}
"""


def test_an_unknown_name_that_is_nearly_right_is_pointed_out():
    ensemble = read("e", RESHAPING.replace('"image"', '"imgae"'))
    with pytest.raises(ConfigError, match="did you mean 'image'"):
        check_members(ensemble, [read("m", MEMBER)], "test")


def test_the_ensembles_own_reshape_counts_inside_it():
    member = read("m", MEMBER)
    assert check_members(read("e", RESHAPING), [member], "test") is False
    plain = read("e", RESHAPING.replace("reshape { shape: 4 }", ""))
    with pytest.raises(
        ConfigError, match=r"\[-1,2,2\] is inferred from model e while \[-1,4\] is inferred from model m"
    ):
        check_members(plain, [member], "test")
