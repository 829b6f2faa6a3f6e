"""Headers that become parameters: which, under what name, and what may not."""

from __future__ import annotations

import pytest

from bident.doors import forwarding
from bident.doors.forwarding import Forwarding
from bident.errors import Code, ServeError
from bident.wire.infer import InferRequest


def forwarded(pattern: str, headers: dict[bytes, bytes], parameters: dict[str, object] | None = None) -> object:
    request = InferRequest("m", "", "", {}, 0)
    request.parameters = parameters
    Forwarding(pattern).apply(request, headers)
    return request.parameters


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("^my-", ["my-a", "My-B"]),
        ("MY-", ["my-a", "My-B", "x-my-c"]),
        ("(?-i)my-", ["my-a", "x-my-c"]),
        ("(?-i)My-", ["My-B"]),
        ("(?-i:My)-", ["My-B"]),
        ("^(my-a|other)$", ["my-a"]),
        ("nothing", []),
    ],
)
def test_a_pattern_matches_anywhere_in_either_case(pattern: str, names: list[str]) -> None:
    headers = {b"my-a": b"1", b"My-B": b"1", b"x-my-c": b"1", b"host": b"here"}
    assert forwarded(pattern, headers) == (dict.fromkeys(names, "1") or None)


def test_names_and_values_stay_as_they_came() -> None:
    headers = {b"X-Name": "grün".encode(), b"x-old": b"gr\xfcn", b"x-empty": b""}
    assert forwarded("^x-", headers) == {"X-Name": "grün", "x-old": "grün", "x-empty": ""}


def test_parameters_of_the_request_stay_and_a_header_of_the_same_name_wins() -> None:
    assert forwarded("^a$", {b"a": b"h"}, {"a": 1, "b": 2}) == {"a": "h", "b": 2}


@pytest.mark.parametrize(
    "name", ["sequence_id", "priority", "timeout", "headers", "binary_data_output", "triton_x", "Timeout", "TRITON_X"]
)
def test_reserved_names(name: str) -> None:
    with pytest.raises(ServeError) as refused:
        forwarded(".*", {name.encode(): b"1"})
    assert refused.value.code is Code.INVALID_ARG
    assert refused.value.message == f"Header '{name}' is reserved for Triton usage and cannot be forwarded."


def test_reserved_names_that_do_not_match_are_no_matter() -> None:
    assert forwarded("^my-", {b"timeout": b"1"}) is None


def test_long_names_and_many_headers() -> None:
    assert forwarded(".*", {b"x" * 65: b"1", b"x" * 64: b"2"}) == {"x" * 64: "2"}
    with pytest.raises(ServeError, match="more than 100 headers"):
        forwarded(".*", {b"x-%d" % number: b"" for number in range(101)})


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "_MOST_REMEMBERED", 4)
    made = Forwarding("^x-")
    for number in range(20):
        request = InferRequest("m", "", "", {}, 0)
        made.apply(request, {b"x-%d" % number: b"1", b"y": b"2"})
        assert request.parameters == {f"x-{number}": "1"}
        assert len(made._known) <= 4


def test_without_a_pattern_there_is_nothing_to_do() -> None:
    assert Forwarding.of("") is None
    assert Forwarding.of("x") is not None
