"""Any JSON in any field of any request is answered or refused, and never fails inside."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.text.doors.scripted_engine import doors

ENDPOINTS = (
    "/api/generate",
    "/api/chat",
    "/api/embed",
    "/api/embeddings",
    "/api/show",
    "/api/create",
    "/api/copy",
    "/api/pull",
    "/api/push",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/tokenize",
    "/detokenize",
)
FIELDS = (
    "model name prompt suffix system template context stream raw format keep_alive images options think "
    "truncate shift logprobs top_logprobs messages tools input dimensions from files adapters license "
    "parameters quantize source destination insecure verbose max_tokens max_completion_tokens temperature "
    "top_p seed stop n tool_choice response_format reasoning reasoning_effort logit_bias stream_options "
    "echo best_of encoding_format query documents top_n instructions text max_output_tokens "
    "previous_response_id truncation stop_sequences thinking output_config content tokens modalities"
)
INNER = (
    "role content type text image_url url thinking tool_calls function name arguments id tool_call_id "
    "source data input tool_use_id summary call_id output parameters schema json_schema format effort "
    "images"
)
WORDS = ["smol", "user", "assistant", "tool", "text", "json", "function", "function_call", "tool_result", "tool_use"]
WORDS += ["message", "image", "image_url", "reasoning", "json_schema", "base64", "data:image/png;base64,eA==", "auto"]

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.sampled_from(WORDS),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(INNER.split()) | st.text(max_size=3), inner, max_size=4),
    ),
    max_leaves=12,
)
bodies = st.dictionaries(st.sampled_from(FIELDS.split()), values, max_size=6)
STAGE = doors()


@settings(max_examples=400, deadline=None)
@given(path=st.sampled_from(ENDPOINTS), body=bodies, named=st.booleans(), talk=st.booleans())
def test_never_an_inner_failure(path: str, body: dict[str, Any], named: bool, talk: bool) -> None:
    if named:
        body["model"] = "smol"
    if talk:
        body["messages"] = (
            [{"role": "user", "content": "x"}, *body.get("messages", [])][:4]
            if isinstance(body.get("messages", []), list)
            else body["messages"]
        )
    answer = STAGE.client.post(path, json=body)
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.json()["error"]
