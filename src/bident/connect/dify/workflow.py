"""A model as an app that Dify imports: its DSL, an app of the mode ``workflow``.

The format is that of Dify's exports: ``kind: app`` with the graph of the canvas, where every node carries both what
its engine runs and where the canvas draws it.
"""

from __future__ import annotations

import re
from importlib.resources import files as resources
from itertools import pairwise
from pprint import pformat
from typing import Any

from bident.client import model_path
from bident.connect.dify.answer import Reading, reading
from bident.connect.dify.question import PREPARE, START, Question, question, sends_file
from bident.connect.dify.tensors import shape_of
from bident.connect.site import TensorModel
from bident.model.parameters import synthetic
from bident.yaml import to_yaml

VERSIONS = ("0.6.0", "0.7.0")
"""Of the DSL: Dify 1.13 to 1.15, and from 1.16 on. The newer ones import the older, with a remark."""
SERVER, KEY = "tensor_server", "api_key"
"""Names of the app's environment variables."""
_ASK, _READ, _END = "ask", "read", "end"
_STEP_ACROSS = 300
_PLAN_LINE = re.compile(r"^PLAN: .*$", re.MULTILINE)
_SECONDS = {"connect": 10, "read": 120, "write": 60}
"""Squid in front of Dify gives up after 120 s by default, so a longer wait would change nothing."""


def workflow(
    model: TensorModel, server: str, *, version: str = VERSIONS[0], top: int = 5, pictures: str, with_key: bool = False
) -> str:
    """The app that asks ``model`` at ``server`` as Dify reaches it, as YAML.

    ``top`` classes of a ranked output; ``pictures`` are uploaded, or text. ``with_key``: the server wants an API key,
    which the app has as a secret. Raises UnfitError where the model cannot be used from Dify.
    """
    shape = shape_of(model)
    answer = reading(shape, top, selects=not sends_file(shape, pictures))
    asked = question(shape, answer.requested, pictures)
    return to_yaml(
        {
            "app": _app(model, answer),
            "dependencies": [],
            "kind": "app",
            "version": version,
            "workflow": {
                "conversation_variables": [],
                "environment_variables": _environment(server, with_key),
                "features": {"file_upload": {"enabled": False}},
                "graph": _graph(model, asked, answer, with_key),
            },
        }
    )


def _app(model: TensorModel, answer: Reading) -> dict[str, Any]:
    about = [f"Asks the model {model.name} of the tensor server."]
    if synthetic(model.config):
        about.append("Its weights are synthetic: the answers mean nothing.")
    if answer.left_out:
        about.append(f"Too large for Dify and left out: {', '.join(answer.left_out)}.")
    return {
        "description": " ".join(about),
        "icon": "🔱",
        "icon_background": "#E4FBCC",
        "icon_type": "emoji",
        "mode": "workflow",
        "name": model.name,
        "use_icon_as_answer_icon": False,
    }


def _environment(server: str, with_key: bool) -> list[dict[str, Any]]:
    """The address in one place, and the key, which every installation fills in itself."""
    variables = [_variable(1, SERVER, server, "string", "The tensor server, as Dify reaches it.")]
    if with_key:
        variables.append(_variable(2, KEY, "", "secret", "The tensor server's API key."))
    return variables


def _variable(number: int, name: str, value: str, kind: str, about: str) -> dict[str, Any]:
    return {
        "description": about,
        "id": f"b1de27a0-0000-4000-8000-{number:012d}",
        "name": name,
        "selector": ["env", name],
        "value": value,
        "value_type": kind,
    }


def _graph(model: TensorModel, asked: Question, answer: Reading, with_key: bool) -> dict[str, Any]:
    nodes = [_node(START, "start", "What is asked", variables=list(asked.fields))]
    if asked.plan is not None:
        nodes.append(_prepare(asked))
    nodes += [_ask(model, asked, with_key), _read(answer), _end(answer)]
    for number, node in enumerate(nodes):
        node["position"] = node["positionAbsolute"] = {"x": 30 + number * _STEP_ACROSS, "y": 250}
    edges = [_edge(*pair) for pair in pairwise(nodes)]
    return {"edges": edges, "nodes": nodes, "viewport": {"x": 0, "y": 0, "zoom": 0.7}}


def _node(name: str, kind: str, title: str, **data: Any) -> dict[str, Any]:
    return {
        "id": name,
        "type": "custom",
        "sourcePosition": "right",
        "targetPosition": "left",
        "width": 244,
        "height": 90,
        "data": {"type": kind, "title": title, "desc": "", "selected": False, **data},
    }


def _edge(source: dict[str, Any], target: dict[str, Any]) -> dict[str, Any]:
    kinds = {"sourceType": source["data"]["type"], "targetType": target["data"]["type"]}
    return {
        "id": f"{source['id']}-{target['id']}",
        "source": source["id"],
        "sourceHandle": "source",
        "target": target["id"],
        "targetHandle": "target",
        "type": "custom",
        "zIndex": 0,
        "data": {"isInIteration": False, "isInLoop": False, **kinds},
    }


def _prepare(asked: Question) -> dict[str, Any]:
    return _code_node(
        PREPARE,
        "Write the request",
        "write_request",
        asked.plan,
        {field["variable"]: [START, field["variable"]] for field in asked.fields},
        {"request": "string"},
    )


def _ask(model: TensorModel, asked: Question, with_key: bool) -> dict[str, Any]:
    headers = []
    if asked.file:
        # A raw request of the binary tensor extension. It can say in its headers alone that JSON is wanted.
        headers = ["Inference-Header-Content-Length:0", "Accept:application/json"]
        body = {"type": "binary", "data": [_part(type="file", file=[START, asked.file])]}
        headers.append("Content-Type:application/octet-stream")
    else:
        text = asked.template or f"{{{{#{PREPARE}.request#}}}}"
        body = {"type": "json", "data": [_part(type="text", value=text)]}
        headers.append("Content-Type:application/json")
    key = {"type": "bearer", "api_key": f"{{{{#env.{KEY}#}}}}", "header": ""}
    return _node(
        _ASK,
        "http-request",
        f"Ask {model.name}",
        variables=[],
        method="post",
        url=f"{{{{#env.{SERVER}#}}}}{model_path(model.name)}/infer",
        authorization={"type": "api-key", "config": key} if with_key else {"type": "no-auth", "config": None},
        headers="\n".join(headers),
        params="",
        body=body,
        ssl_verify=True,
        timeout=_SECONDS,
        retry_config={"retry_enabled": False, "max_retries": 1, "retry_interval": 100},
    )


def _part(**content: Any) -> dict[str, Any]:
    return {"id": "body", "key": "", "value": "", **content}


def _read(answer: Reading) -> dict[str, Any]:
    given = {"status": [_ASK, "status_code"], "body": [_ASK, "body"]}
    return _code_node(_READ, "Read the answer", "read_answer", answer.plan, given, answer.variables)


def _end(answer: Reading) -> dict[str, Any]:
    outputs = [
        {"variable": name, "value_selector": [_READ, name], "value_type": kind}
        for name, kind in answer.variables.items()
    ]
    return _node(_END, "end", "What is answered", outputs=outputs)


def _code_node(
    name: str, title: str, module: str, plan: Any, given: dict[str, list[str]], outputs: dict[str, str]
) -> dict[str, Any]:
    return _node(
        name,
        "code",
        title,
        code_language="python3",
        code=code(module, plan),
        variables=[{"variable": variable, "value_selector": selector} for variable, selector in given.items()],
        outputs={variable: {"type": kind, "children": None} for variable, kind in outputs.items()},
    )


def code(module: str, plan: Any) -> str:
    """The source of a module in ``nodes`` with its ``PLAN`` filled in."""
    source = (resources(__package__) / "nodes" / f"{module}.py").read_text(encoding="utf-8")
    filled = f"PLAN = {pformat(plan, width=100, sort_dicts=False)}"
    return _PLAN_LINE.sub(lambda _: filled, source, count=1)
