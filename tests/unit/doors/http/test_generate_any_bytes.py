"""Whatever a generate body holds: an answer, and it is the same whichever reader has read the body."""

from __future__ import annotations

import json

import numpy as np
import pytest
from generate_house import Stage
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bident.doors.http import generate_request
from bident.errors import ServeError
from bident.wire.infer import InferRequest
from tests.unit.engine.engine_fakes import model_config

IO = """
input [
  { name: "X" data_type: TYPE_INT32 dims: [ -1, 2 ] optional: true },
  { name: "Y" data_type: TYPE_FP16 dims: [ -1 ] optional: true },
  { name: "S" data_type: TYPE_STRING dims: [ 1 ] optional: true },
  { name: "B" data_type: TYPE_BOOL dims: [ -1 ] optional: true }
]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
CONFIG = model_config("", io=IO, batch=0, name="m")

_KEYS = st.sampled_from(["X", "Y", "S", "B", "id", "parameters", "a", "", "\0", "X\0"])
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.integers(0, 3), st.floats(), st.text(max_size=3)
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_KEYS, inner, max_size=3)),
    max_leaves=8,
)
_BODIES = st.one_of(
    st.dictionaries(_KEYS, _VALUES, max_size=5).map(lambda document: json.dumps(document).encode()),
    st.binary(max_size=30),
    st.text(max_size=30).map(lambda text: b'{"X":' + text.encode("utf-8", "replace") + b"}"),
)


@given(body=_BODIES)
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_reaches_the_model_or_gets_an_error(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(CONFIG)
    stage.ask(body, route="generate")
    if not stage.servable.requests:
        status, message = stage.refusal
        assert status == 400
        assert message
    assert not caplog.records


def meaning(body: bytes) -> object:
    """What the reader makes of ``body``; None where it refuses it."""
    try:
        request = generate_request.parse(("m", ""), CONFIG, body, 0)
    except ServeError:
        return None
    return request.id, repr(request.parameters), tensors(request)


def tensors(request: InferRequest) -> dict[str, object]:
    return {
        name: (tensor.shape, [repr(value) for value in np.asarray(tensor.data, object).reshape(-1).tolist()])
        for name, tensor in request.inputs.items()
        if tensor.datatype.name != "FP16"  # one reader rounds at once, the other when the batch is joined
    }


@given(body=_BODIES)
@example(body=b'{"X":[1,2],"X":[3,4]}')
@example(body=b'{"X":[[1],[2]]}')
@example(body=b'{"a":18446744073709551616,"B":[true]}')
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_readers_agree(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate_request, "LARGE_BODY", 1 << 30)
    small = meaning(body)
    monkeypatch.setattr(generate_request, "LARGE_BODY", 0)
    large = meaning(body)
    if large is None and small is not None:
        # Of the numbers, the reader of large bodies looks at once at what fits their datatype.
        monkeypatch.setattr(generate_request, "LARGE_BODY", 1 << 30)
        request = generate_request.parse(("m", ""), CONFIG, body, 0)
        assert any(name in request.inputs for name in ("X", "Y"))
        return
    assert small == large
