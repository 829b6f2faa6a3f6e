"""Puts a question to a model: what it leaves open is asked for, labels come by classification."""

from __future__ import annotations

from typing import Any

from bident.cli.card import ModelCard
from bident.cli.question import Question
from bident.client import Client, model_path
from bident.client.infer import Answer, as_json, infer, infer_body


def ask(client: Client, model: ModelCard, question: Question, *, version: str = "", top: int = 0) -> Answer:
    """Send ``question``. ``top`` > 0: the outputs that have labels answer with their ``top`` best classes.

    A whole request is sent as it was written, and only gets the outputs it does not name. Raises
    what the server answers.
    """
    outputs = [_wanted(name, top if card.labelled else 0) for name, card in model.outputs.items()]
    if question.body is not None:
        return infer_body(client, model.name, {"outputs": outputs, **question.body}, version=version)
    return infer(client, model.name, question.tensors, version=version, outputs=outputs)


def ask_json(client: Client, model: ModelCard, question: Question, *, version: str = "") -> Any:
    """Send ``question`` as JSON, and return the JSON answer as the server wrote it."""
    body = as_json(question.tensors) if question.body is None else question.body
    return client.call("POST", model_path(model.name, version) + "/infer", body)


def _wanted(name: str, classes: int) -> dict[str, Any]:
    parameters: dict[str, Any] = {"binary_data": True}
    if classes:
        parameters["classification"] = classes
    return {"name": name, "parameters": parameters}
