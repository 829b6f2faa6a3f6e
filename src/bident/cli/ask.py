"""Puts a question to a model: what it leaves open is asked for, labels come by classification."""

from __future__ import annotations

from typing import Any

from bident.cli.card import ModelCard
from bident.cli.question import Question
from bident.client import Client
from bident.client.infer import Answer, as_json, infer, infer_body, is_text


def ask(client: Client, model: ModelCard, question: Question, *, version: str = "", top: int = 0) -> Answer:
    """Send ``question``. ``top`` > 0: the outputs that have labels answer with their ``top`` best classes.

    A whole request is sent as it was written, and only gets the outputs it does not name. Raises
    what the server answers.
    """
    outputs = [_wanted(name, top if card.labelled else 0) for name, card in model.outputs.items()]
    if question.body is not None:
        body = _with_parameters({"outputs": outputs, **question.body}, question)
        return infer_body(client, model.name, body, version=version)
    return infer(client, model.name, question.tensors, version=version, outputs=outputs, parameters=question.parameters)


def ask_json(client: Client, model: ModelCard, question: Question, *, version: str = "") -> Answer:
    """Send ``question`` as JSON (files as binary data); the answer's ``body`` is the server's JSON as it wrote it."""
    if question.body is None and not all(map(is_text, question.tensors.values())):
        return infer(
            client,
            model.name,
            question.tensors,
            version=version,
            parameters=question.parameters,
            binary_outputs=False,
        )
    body = as_json(question.tensors) if question.body is None else question.body
    return infer_body(client, model.name, _with_parameters(body, question), version=version)


def _with_parameters(body: dict[str, Any], question: Question) -> dict[str, Any]:
    if not question.parameters:
        return body
    return {**body, "parameters": {**body.get("parameters", {}), **question.parameters}}


def _wanted(name: str, classes: int) -> dict[str, Any]:
    parameters: dict[str, Any] = {"binary_data": True}
    if classes:
        parameters["classification"] = classes
    return {"name": name, "parameters": parameters}
