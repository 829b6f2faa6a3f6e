"""The server's answer becomes variables that Dify can hold: at most 30 objects, 1000 numbers, 400000 characters."""

import json
from collections.abc import Callable
from typing import Any

PLAN: list[dict[str, Any]] = []

LONGEST_TEXT = 400000
MOST_OBJECTS = 30
LARGEST = 2**63 - 1
MOST_DIGITS = 20


def main(status: int, body: str) -> dict[str, Any]:
    """What PLAN makes of the outputs, and all of it as one text: ``answer``."""
    outputs = read_outputs(status, body)
    found: dict[str, Any] = {}
    for step in PLAN:
        found.update(WAYS[step["how"]](step, outputs))
    texts = [step["variable"] for step in PLAN if step["how"] == "text"]
    shown = {name: value for name, value in found.items() if name not in texts}
    found["answer"] = as_text("answer", shown)
    return found


def read_outputs(status: int, body: str) -> dict[str, Any]:
    """The outputs by name. Raises what the server, or what stood in its way, had to say."""
    if "ERR_ACCESS_DENIED" in body:
        raise ValueError(
            "Dify's ssrf_proxy refused to pass the request on: name the server in SSRF_PROXY_ALLOW_PRIVATE_DOMAINS or "
            "SSRF_PROXY_ALLOW_PRIVATE_IPS in docker/.env, then: docker compose up -d --force-recreate ssrf_proxy"
        )
    try:
        answer = json.loads(body)
        if status == 200:
            return {output["name"]: output for output in answer["outputs"]}
        message = answer["error"]
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"this is no answer of a tensor server (status {status}): {body[:300] or 'nothing'}") from None
    raise ValueError(f"the tensor server answered {status}: {message}")


def one_value(step: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    """A number, a text or a boolean."""
    data = outputs[step["output"]]["data"]
    return {step["variable"]: fit(data[0]) if data else None}


def flat_list(step: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    """An array; none at all where a number is missing from it (NaN), which Dify's arrays cannot say."""
    values = [fit(value) for value in outputs[step["output"]]["data"]]
    return {step["variable"]: None if None in values else values}


def json_text(step: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    """Lists within lists, as JSON."""
    return {step["variable"]: as_text(step["output"], nested(step, outputs[step["output"]]))}


def ranking(step: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    """The best classes, which the server wrote as ``score:number:name``."""
    ranked = []
    for entry in outputs[step["output"]]["data"][:MOST_OBJECTS]:
        score, number, *name = entry.split(":", 2)
        ranked.append({"label": name[0] if name else number, "score": fit(float(score)), "number": int(number)})
    best = ranked[0] if ranked else {"label": None, "score": None}
    return {step["label"]: best["label"], step["score"]: best["score"], step["variable"]: ranked}


def table(step: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    """Outputs that have a row for each thing, put together by row; none where they have not as many rows."""
    columns = {name: nested(step, outputs[name]) for name in step["outputs"]}
    counts = {len(column) for column in columns.values()}
    count = counts.pop() if len(counts) == 1 else None
    rows = [{name: column[row] for name, column in columns.items()} for row in range(min(count or 0, MOST_OBJECTS))]
    return {step["count"]: count, step["variable"]: rows}


WAYS: dict[str, Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]] = {
    "value": one_value,
    "list": flat_list,
    "text": json_text,
    "ranking": ranking,
    "table": table,
}


def nested(step: dict[str, Any], output: dict[str, Any]) -> Any:
    """The flat data as lists within lists, by its shape without the batch."""
    values, shape = [fit(value) for value in output["data"]], output["shape"][step["skip"] :]
    for size in reversed(shape[1:]):
        count = len(values) // size if size else 0
        values = [values[row * size : (row + 1) * size] for row in range(count)]
    return values


def fit(value: Any) -> Any:
    """A number that Dify's variables can hold: of 63 bits, of 20 digits behind the point; else nothing."""
    if isinstance(value, float):
        return round(value, MOST_DIGITS) if abs(value) <= LARGEST else None
    if isinstance(value, int) and abs(value) > LARGEST:
        return None
    return value


def as_text(name: str, value: Any) -> str:
    """JSON. Raises for more than a variable holds."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"'{name}' has {len(text)} characters as text, and a variable in Dify holds {LONGEST_TEXT}")
    return text
