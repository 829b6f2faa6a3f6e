"""Runs the Python in CODE, which sets ``answer`` (sent as JSON), ``response``, or what ``execute`` returns: ``result``.

The model's parameters ``INITIALIZE`` and ``FINALIZE`` are run then. A decoupled model sends what it likes.
"""

import asyncio
import gc
import json
import os
import sys
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


def caught(call):
    """The type and the text of what ``call`` raises; ``None`` if it does not."""
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


def tensor(name, values, dtype=np.float32):
    return pb_utils.Tensor(name, np.array(values, dtype=dtype))


def said(value):
    """An InferenceResponse with ``value`` as JSON."""
    return pb_utils.InferenceResponse([tensor("ANSWER", [json.dumps(value, default=repr).encode()], np.object_)])


def ask(model, code="answer = 'asked'", outputs=("ANSWER",), **details):
    """A request to another script model."""
    return pb_utils.InferenceRequest(
        model_name=model,
        requested_output_names=list(outputs),
        inputs=[tensor("CODE", [code.encode()], np.object_)],
        **details,
    )


def read(response):
    """What another script model answered; its error as a text."""
    if response.has_error():
        return "error: " + response.error().message()
    return json.loads(pb_utils.get_output_tensor_by_name(response, "ANSWER").as_numpy().reshape(-1)[0])


SCOPE = {
    "asyncio": asyncio,
    "ask": ask,
    "caught": caught,
    "gc": gc,
    "json": json,
    "np": np,
    "os": os,
    "pb_utils": pb_utils,
    "read": read,
    "said": said,
    "sys": sys,
    "tensor": tensor,
    "threading": threading,
    "time": time,
}


class TritonPythonModel:
    def initialize(self, args):
        self.args = args
        config = json.loads(args["model_config"])
        self.decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        self.parameters = {key: value["string_value"] for key, value in config.get("parameters", {}).items()}
        exec(self.parameters.get("INITIALIZE", ""), {**SCOPE, "self": self})

    def execute(self, requests):
        responses = []
        for request in requests:
            code = pb_utils.get_input_tensor_by_name(request, "CODE").as_numpy().reshape(-1)[0].decode("utf-8")
            scope = {**SCOPE, "request": request, "requests": requests, "self": self, "answer": None}
            exec(code, scope)
            if "result" in scope:
                return scope["result"]
            if not self.decoupled:
                responses.append(scope["response"] if "response" in scope else said(scope["answer"]))
        return None if self.decoupled else responses

    def finalize(self):
        exec(self.parameters.get("FINALIZE", ""), {**SCOPE, "self": self})
