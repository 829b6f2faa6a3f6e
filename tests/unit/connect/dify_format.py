"""What an app in Dify's DSL has to be, in our words: what its import and its engine look at, and its canvas draws."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import yaml
from jsonschema import Draft202012Validator

_TEMPLATE = re.compile(r"\{\{#([a-zA-Z0-9_]{1,50})\.([a-zA-Z_][a-zA-Z0-9_]{0,29})#\}\}")
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,29}")
"""What Dify takes for the name of a variable."""
_LONGEST_LABEL = 48

_SELECTOR = {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}
_POSITION = {"type": "object", "required": ["x", "y"], "additionalProperties": {"type": "number"}}
_FIELD = {
    "type": "object",
    "required": ["variable", "label", "type", "required"],
    "properties": {
        "variable": {"type": "string", "pattern": f"^{_NAME.pattern}$"},
        "label": {"type": "string", "minLength": 1, "maxLength": _LONGEST_LABEL},
        "type": {"enum": ["text-input", "paragraph", "select", "number", "file"]},
        "required": {"type": "boolean"},
        "max_length": {"type": "integer", "minimum": 1},
        "options": {"type": "array", "items": {"type": "string"}},
    },
}
_TYPES = [
    "string",
    "number",
    "boolean",
    "object",
    *(f"array[{kind}]" for kind in ("string", "number", "object", "boolean")),
]
_DATA = {
    "start": {"required": ["variables"], "properties": {"variables": {"type": "array", "items": _FIELD}}},
    "code": {
        "required": ["code_language", "code", "variables", "outputs"],
        "properties": {
            "code_language": {"const": "python3"},
            "code": {"type": "string", "pattern": "def main\\("},
            "variables": {
                "type": "array",
                "items": {
                    "required": ["variable", "value_selector"],
                    "properties": {"variable": {"pattern": f"^{_NAME.pattern}$"}, "value_selector": _SELECTOR},
                },
            },
            "outputs": {
                "type": "object",
                "minProperties": 1,
                "propertyNames": {"pattern": f"^{_NAME.pattern}$"},
                "additionalProperties": {
                    "required": ["type", "children"],
                    "properties": {"type": {"enum": _TYPES}, "children": {"type": "null"}},
                },
            },
        },
    },
    "http-request": {
        "required": ["method", "url", "authorization", "headers", "params", "body", "timeout", "retry_config"],
        "properties": {
            "method": {"enum": ["get", "post", "put", "patch", "delete", "head"]},
            "url": {"type": "string", "pattern": "^(https?://|\\{\\{#env\\.)"},
            "headers": {"type": "string"},
            "params": {"type": "string"},
            "body": {
                "properties": {
                    "type": {"enum": ["json", "binary"]},
                    "data": {"type": "array", "minItems": 1, "maxItems": 1},
                }
            },
            "timeout": {
                "properties": {
                    "connect": {"maximum": 10},
                    "read": {"maximum": 600},
                    "write": {"maximum": 600},
                }
            },
        },
    },
    "end": {
        "required": ["outputs"],
        "properties": {
            "outputs": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "required": ["variable", "value_selector", "value_type"],
                    "properties": {"value_selector": _SELECTOR, "value_type": {"enum": _TYPES}},
                },
            }
        },
    },
}
_NODE = {
    "type": "object",
    "required": ["id", "type", "position", "positionAbsolute", "sourcePosition", "targetPosition", "data"],
    "properties": {
        "id": {"type": "string", "pattern": "^[a-zA-Z0-9_]{1,50}$"},
        "type": {"const": "custom"},
        "position": _POSITION,
        "positionAbsolute": _POSITION,
        "data": {
            "required": ["type", "title", "desc", "selected"],
            "allOf": [
                {"if": {"properties": {"type": {"const": kind}}}, "then": shape} for kind, shape in _DATA.items()
            ],
            "properties": {"type": {"enum": list(_DATA)}},
        },
    },
}
_EDGE = {
    "required": ["id", "source", "sourceHandle", "target", "targetHandle", "type", "data"],
    "properties": {"sourceHandle": {"const": "source"}, "targetHandle": {"const": "target"}},
}
SCHEMA = {
    "type": "object",
    "required": ["app", "kind", "version", "workflow", "dependencies"],
    "properties": {
        "kind": {"const": "app"},
        "version": {"type": "string", "pattern": "^\\d+\\.\\d+\\.\\d+$"},
        "app": {
            "required": ["name", "mode"],
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "mode": {"const": "workflow"},
                "icon_type": {"enum": ["emoji", "image", "link"]},
            },
        },
        "workflow": {
            "required": ["graph", "features", "environment_variables", "conversation_variables"],
            "properties": {
                "environment_variables": {
                    "items": {
                        "required": ["id", "name", "value", "value_type", "selector"],
                        "properties": {"value_type": {"enum": ["string", "number", "secret"]}},
                    }
                },
                "graph": {
                    "required": ["nodes", "edges"],
                    "properties": {
                        "nodes": {"type": "array", "items": _NODE},
                        "edges": {"type": "array", "items": _EDGE},
                    },
                },
            },
        },
    },
}


def checked(text: str) -> dict[str, Any]:
    """The app in ``text``. AssertionError naming what Dify would not take, draw or find."""
    app: dict[str, Any] = yaml.safe_load(text)
    Draft202012Validator.check_schema(SCHEMA)
    assert [error.message for error in Draft202012Validator(SCHEMA).iter_errors(app)] == []
    nodes = {node["id"]: node["data"] for node in app["workflow"]["graph"]["nodes"]}
    assert len(nodes) == len(app["workflow"]["graph"]["nodes"])
    _check_edges(app["workflow"]["graph"]["edges"], nodes)
    made = {name: _variables(data) for name, data in nodes.items()}
    made["env"] = {each["name"] for each in app["workflow"]["environment_variables"]}
    for reference in (*_selectors(nodes), *_templates(nodes)):
        assert reference[1] in made.get(reference[0], ()), f"{reference} is made by no node"
    return app


def _check_edges(edges: list[dict[str, Any]], nodes: dict[str, Any]) -> None:
    """One line from the start to the end through all nodes, in the order in which they stand."""
    assert len({edge["id"] for edge in edges}) == len(edges)
    names = list(nodes)
    assert [(edge["source"], edge["target"]) for edge in edges] == list(pairwise(names))
    for edge in edges:
        assert edge["data"]["sourceType"] == nodes[edge["source"]]["type"]
        assert edge["data"]["targetType"] == nodes[edge["target"]]["type"]


def _variables(data: dict[str, Any]) -> set[str]:
    """What other nodes can ask a node for."""
    if data["type"] == "start":
        names = [field["variable"] for field in data["variables"]]
        assert len(set(names)) == len(names)
        return set(names)
    if data["type"] == "http-request":
        return {"status_code", "body", "headers", "files"}
    return set(data["outputs"]) if data["type"] == "code" else set()


def _selectors(nodes: dict[str, Any]) -> list[tuple[str, str]]:
    found = []
    for data in nodes.values():
        entries = data.get("variables", []) if data["type"] == "code" else data.get("outputs", [])
        if data["type"] in ("code", "end"):
            found += [tuple(entry["value_selector"]) for entry in entries]
        if data["type"] == "http-request":
            found += [tuple(part["file"]) for part in data["body"]["data"] if part["type"] == "file"]
    return found


def _templates(nodes: dict[str, Any]) -> list[tuple[str, str]]:
    """What the HTTP node is filled with; every ``{{#`` in it must be one that Dify recognises."""
    found: list[tuple[str, str]] = []
    for data in nodes.values():
        if data["type"] == "http-request":
            text = "\n".join([data["url"], data["headers"], str(data["authorization"]), str(data["body"])])
            assert len(_TEMPLATE.findall(text)) == text.count("{{#")
            found += _TEMPLATE.findall(text)
    return found
