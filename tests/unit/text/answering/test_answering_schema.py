"""JSON values by JSON Schema."""

from __future__ import annotations

from typing import Any

import pytest

from bident.errors import ServeError
from bident.text.answering.schema import check_schema, violation, without_booleans

TREE = {"$ref": "#/$defs/node", "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}, "type": "object"}}}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (True, [1, None, {}], []),
        (False, [], [1, None]),
        ({"type": "integer"}, [1, 1.0, -5], [1.5, True, "1", None]),
        ({"type": ["string", "null"]}, ["a", None], [1, []]),
        ({"enum": [1, {"a": [1]}]}, [1, 1.0, {"a": [1]}], [2, True, {"a": [2]}]),
        ({"const": None}, [None], [0, False, ""]),
        ({"minimum": 1, "exclusiveMaximum": 3}, [1, 2.9, "x"], [0, 3]),
        ({"multipleOf": 0.1}, [0.3, 2], [0.35]),
        ({"minLength": 2, "maxLength": 3}, ["ab", "é€x", 1], ["a", "abcd"]),
        ({"required": ["a"], "properties": {"a": {"type": "string"}}}, [{"a": "x", "b": 1}, 3], [{}, {"a": 1}]),
        ({"properties": {"a": True}, "additionalProperties": False}, [{}, {"a": 1}], [{"b": 1}]),
        ({"additionalProperties": {"type": "null"}}, [{"b": None}], [{"b": 1}]),
        ({"patternProperties": {"^x": True}, "additionalProperties": False}, [{"x1": 1}], []),
        ({"minProperties": 1, "maxProperties": 1}, [{"a": 1}], [{}, {"a": 1, "b": 2}]),
        ({"propertyNames": {"maxLength": 1}}, [{"a": 1}], [{"ab": 1}]),
        ({"dependentRequired": {"a": ["b"]}}, [{"b": 1}, {"a": 1, "b": 1}], [{"a": 1}]),
        ({"items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, [[1], [1, 2], "x"], [[], ["a"], [1, 2, 3]]),
        ({"prefixItems": [{"const": 1}], "items": False}, [[1], []], [[2], [1, 2]]),
        ({"uniqueItems": True}, [[1, 2, "1"]], [[1, 1.0], [{"a": 1, "b": 2}, {"b": 2, "a": 1}]]),
        ({"contains": {"const": 1}, "maxContains": 1}, [[1, 2]], [[2], [1, 1]]),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1, 2], [0, 3]),
        ({"anyOf": [{"type": "string"}, {"minimum": 5}]}, ["a", 5], [4]),
        ({"oneOf": [{"minimum": 1}, {"maximum": 2}]}, [0, 3], [1, 2]),
        ({"not": {"type": "string"}}, [1], ["a"]),
        ({"if": {"minimum": 5}, "then": {"multipleOf": 5}, "else": {"maximum": 1}}, [5, 10, 0], [7, 2]),
        (TREE, [{"next": {"next": {}}}], [{"next": {"next": 3}}]),
    ],
)
def test_values_by_schema(schema: Any, good: list[Any], bad: list[Any]) -> None:
    check_schema(schema)

    assert [violation(value, schema) for value in good] == [""] * len(good)
    assert all(violation(value, schema) for value in bad)


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"properties": {"a": True}}, {"properties": {"a": {}}}),
        ({"additionalProperties": False}, {"additionalProperties": False}),
        ({"items": {"items": True}}, {"items": {"items": {}}}),
        ({"prefixItems": [True, {"const": 1}], "items": False}, {"prefixItems": [{}, {"const": 1}], "maxItems": 2}),
        ({"items": False, "maxItems": 3}, {"maxItems": 0}),
        ({"allOf": [True, {"type": "null"}]}, {"allOf": [{"type": "null"}]}),
        ({"allOf": [True]}, {"allOf": [{}]}),
    ],
)
def test_schemas_are_written_without_booleans_for_llama_cpp(schema: Any, written: Any) -> None:
    check_schema(schema)

    assert without_booleans(schema) == written


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {"a": False}}, "#/properties/a"),
        ({"anyOf": [{}, False]}, "#/anyOf/1"),
        ({"items": {"prefixItems": [False]}}, "#/items/prefixItems/0"),
    ],
)
def test_a_part_that_nothing_satisfies_is_named(schema: Any, place: str) -> None:
    with pytest.raises(ServeError, match=f"invalid format: {place} is false, which no value satisfies"):
        check_schema(schema)


def test_the_place_of_a_violation_is_said() -> None:
    schema = {"properties": {"list": {"items": {"properties": {"a": {"type": "string"}}}}}}

    assert violation({"list": [{}, {"a": 1}]}, schema) == "$.list[1].a is no string"


def test_schemas_and_values_without_an_end_have_one() -> None:
    loop: dict[str, Any] = {"$ref": "#"}
    assert "too deeply" in violation(1, loop)

    branching = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}
    assert violation(1, branching)

    deep: Any = 1
    for _ in range(2000):
        deep = {"not": deep} if deep != 1 else {"not": True}
    with pytest.raises(ServeError, match="more than 100 levels"):
        check_schema(deep)
    nested: Any = []
    for _ in range(900):
        nested = [nested]
    assert "too deeply" in violation(nested, {"items": {"$ref": "#"}, "uniqueItems": True})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}]}}},
    ],
)
def test_a_schema_that_is_only_what_it_is_is_refused(schema: Any) -> None:
    with pytest.raises(ServeError, match="refers to itself without an end"):
        check_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [*range(1001)]},
        {"items": {"anyOf": [{"const": number} for number in range(1001)]}},
        {"properties": {f"p{number}": {"enum": [*range(100)]} for number in range(10)}},
        {"properties": {f"p{number}": True for number in range(1001)}, "required": "p1"},
    ],
)
def test_more_choices_than_llama_cpp_can_take_are_refused(schema: Any) -> None:
    with pytest.raises(ServeError, match="more than 1000 choices"):
        check_schema(schema)


def test_what_is_required_is_no_choice() -> None:
    names = [f"p{number}" for number in range(2000)]
    check_schema({"properties": dict.fromkeys(names, True), "required": names})
