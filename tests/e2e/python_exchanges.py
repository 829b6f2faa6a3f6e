"""What a real Triton and Bident are both asked of ``python_repository.write_compared``.

``python tests/e2e/python_exchanges.py PORT`` asks the server on that port and prints its answers, as they are
kept for Triton (its repository's folder called REPOSITORY) in ``data/python_answers.json``. Not among the requests
is what a real Triton 2.51 never answers; ``test_python_fidelity`` says what Bident makes of that.
"""

from __future__ import annotations

import json
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from asking import Answer, Asker, binary_body

ANSWERS = Path(__file__).parent / "data" / "python_answers.json"


@dataclass(frozen=True)
class Exchange:
    """One request: ``document`` is its JSON, ``parts`` the binary tensors behind it."""

    path: str
    document: dict[str, Any] | None = None
    parts: tuple[bytes, ...] = ()
    headers: dict[str, str] = field(default_factory=dict)

    def send(self, ask: Asker) -> Answer:
        if self.document is None:
            return ask.get(self.path)
        if self.parts:
            body, headers = binary_body(self.document, *self.parts)
            return ask.post(self.path, body, {**headers, **self.headers})
        return ask.post(self.path, self.document, self.headers)


def told(answer: Answer) -> dict[str, Any]:
    """What of an answer is compared: status, JSON, and the binary part in hexadecimal digits."""
    length = answer.headers.get("inference-header-content-length")
    document = json.loads(answer.body[: int(length)] if length else answer.body) if answer.body else None
    said: dict[str, Any] = {"status": answer.status, "json": document}
    if length:
        said["binary"] = answer.binary.hex()
    return said


def scripted(code: str, model: str = "script", **rest: Any) -> Exchange:
    """Have a script model run ``code``."""
    given = {"name": "CODE", "shape": [1], "datatype": "BYTES", "data": [code]}
    return Exchange(f"/v2/models/{model}/infer", {"inputs": [given], **rest})


def _typed(word: str, shape: list[int], data: list[Any], **rest: Any) -> Exchange:
    given = {"name": f"IN_{word}", "shape": shape, "datatype": word, "data": data}
    return Exchange("/v2/models/types/infer", {"inputs": [given], **rest})


def _typed_binary(word: str, shape: list[int], raw: bytes) -> Exchange:
    given = {"name": f"IN_{word}", "shape": shape, "datatype": word, "parameters": {"binary_data_size": len(raw)}}
    wanted = {"name": f"OUT_{word}", "parameters": {"binary_data": True}}
    return Exchange("/v2/models/types/infer", {"inputs": [given], "outputs": [wanted]}, (raw,))


def _numbers(model: str, datatype: str, shape: list[int], data: list[Any], **rest: Any) -> Exchange:
    given = {"name": "X", "shape": shape, "datatype": datatype, "data": data}
    return Exchange(f"/v2/models/{model}/infer", {"inputs": [given], **rest})


def _text(*elements: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def output(name: str, values: str, dtype: str) -> str:
    """Code whose response has one output."""
    return f"response = pb_utils.InferenceResponse([pb_utils.Tensor('{name}', np.array({values}, dtype={dtype}))])"


DETAILS = (
    "answer = [request.request_id(), request.correlation_id(), request.flags(), request.timeout(), "
    "sorted(request.requested_output_names()), json.loads(request.parameters())]"
)
ARGUMENTS = (
    "answer = {key: value for key, value in self.args.items() if key not in ('model_config', 'model_repository')}; "
    "answer['folder'] = os.path.basename(self.args['model_repository'].rstrip('/')); "
    "answer['here'] = os.path.relpath(pb_utils.get_model_dir(), self.args['model_repository'])"
)
_CODES = (
    "UNKNOWN",
    "INTERNAL",
    "NOT_FOUND",
    "INVALID_ARG",
    "UNAVAILABLE",
    "UNSUPPORTED",
    "ALREADY_EXISTS",
    "CANCELLED",
)

REQUESTS: dict[str, Exchange] = {
    "details: none": scripted(DETAILS),
    "details: id": scripted(DETAILS, id="r-é-1"),
    "details: sequence of number": scripted(
        DETAILS, parameters={"sequence_id": 7, "sequence_start": True, "sequence_end": False}
    ),
    "details: sequence of text": scripted(DETAILS, parameters={"sequence_id": "s-2", "sequence_end": True}),
    "details: timeout and priority": scripted(DETAILS, parameters={"timeout": 12345678, "priority": 2}),
    "details: parameters": scripted(DETAILS, parameters={"a": 1, "b": True, "c": "d", "e": 1.5, "f": -3}),
    "details: outputs": scripted(DETAILS, outputs=[{"name": "ANSWER"}]),
    "arguments": scripted(ARGUMENTS),
    "config": scripted("answer = sorted(json.loads(self.args['model_config']))"),
    "config: instance groups": scripted("answer = json.loads(self.args['model_config'])['instance_group']"),
    "response parameters": scripted(
        "response = said(1); response = pb_utils.InferenceResponse(response.output_tensors(), "
        "parameters={'i': 1, 'b': False, 's': 'é'})"
    ),
    "response parameters: float": scripted(
        "answer = caught(lambda: pb_utils.InferenceResponse([], parameters={'x': 1.5}))"
    ),
    "response parameters: key": scripted("answer = caught(lambda: pb_utils.InferenceResponse([], parameters={1: 1}))"),
    "error and outputs": scripted(
        "response = pb_utils.InferenceResponse(said(1).output_tensors(), pb_utils.TritonError('both'))"
    ),
    "error of no code": scripted("response = pb_utils.InferenceResponse(error=pb_utils.TritonError('plain'))"),
    "error of text": scripted("response = pb_utils.InferenceResponse(error='text')"),
    "raised": scripted("raise ValueError('€ of the model')"),
    "raised: with a request id": scripted("raise ValueError('of the model')", id="seven"),
    "raised: TritonModelException": scripted("raise pb_utils.TritonModelException('of the model')"),
    "result: empty": scripted("result = []"),
    "result: a number": scripted("result = [5]"),
    "result: too many": scripted("result = [said(1), said(2)]"),
    "sender: once": scripted(
        "request.get_response_sender().send(said(1), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL); result = None"
    ),
    "sender: once, None in the list": scripted(
        "request.get_response_sender().send(said(1), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL); result = [None]"
    ),
    "cancelled: not": scripted("answer = request.is_cancelled()"),
    "output: float64 for FP32": scripted(output("F", "[1.5, 2]", "np.float64")),
    "output: right": scripted(output("F", "[1.5, 2]", "np.float32")),
    "output: int64 for INT8": scripted(output("I", "[1, -2]", "np.int64")),
    "output: too large for INT8": scripted(output("I", "[257, 0]", "np.int64")),
    "output: int64 for FP32": scripted(output("F", "[1, 2]", "np.int64")),
    "output: too long": scripted(output("F", "[1, 2, 3]", "np.float32")),
    "output: of more dimensions": scripted(output("F", "[[1, 2]]", "np.float32")),
    "output: empty": scripted(output("V", "[]", "np.float32")),
    "output: strings": scripted(output("S", "['é', b'x', '']", "np.object_")),
    "output: fixed-width strings": scripted(output("S", "['é', 'abc']", "str")),
    "output: not declared": scripted(
        "response = pb_utils.InferenceResponse([*said(1).output_tensors(), tensor('DEBUG', [1])])"
    ),
    "output: of a wrong name": scripted(output("ANSWERS", "[b'x']", "np.object_")),
    "output: none": scripted("response = pb_utils.InferenceResponse([])"),
    "output: missing": scripted("answer = 1", outputs=[{"name": "ANSWER"}, {"name": "F"}]),
    "output: the one asked for": scripted(
        "response = pb_utils.InferenceResponse([*said(1).output_tensors(), tensor('F', [1, 2])])",
        outputs=[{"name": "F"}],
    ),
    "output: unknown": scripted("answer = 1", outputs=[{"name": "G"}]),
    "call: exec": scripted("answer = read(ask('peer', 'answer = [1, request.request_id()]', request_id='b').exec())"),
    "call: details": scripted(
        f"answer = read(ask('peer', {DETAILS!r}, request_id='b', correlation_id=5, flags=1, timeout=1000000, "
        "parameters={'p': 'q'}).exec())"
    ),
    "call: an unknown model": scripted("answer = read(ask('nobody').exec())"),
    "call: an unknown version": scripted("answer = read(ask('peer', model_version=7).exec())"),
    "call: an unknown input": scripted(
        "answer = read(pb_utils.InferenceRequest(model_name='peer', requested_output_names=['ANSWER'], "
        "inputs=[tensor('NONE', [1])]).exec())"
    ),
    "call: a wrong datatype": scripted(
        "answer = read(pb_utils.InferenceRequest(model_name='peer', requested_output_names=['ANSWER'], "
        "inputs=[tensor('CODE', [1])]).exec())"
    ),
    "call: a wrong shape": scripted(
        "answer = read(pb_utils.InferenceRequest(model_name='peer', requested_output_names=['ANSWER'], "
        "inputs=[tensor('CODE', [b'', b''], np.object_)]).exec())"
    ),
    "call: an unknown output": scripted("answer = read(ask('peer', outputs=['ANSWER', 'NONE']).exec())"),
    "call: an output not produced": scripted("answer = read(ask('peer', outputs=['ANSWER', 'F']).exec())"),
    "call: that raises": scripted("answer = read(ask('peer', 'raise ValueError(3)').exec()).splitlines()[-1]"),
    "call: an error of its own": scripted(
        "told = ask('peer', 'response = pb_utils.InferenceResponse(error=pb_utils.TritonError(\"no\", "
        "pb_utils.TritonError.NOT_FOUND))').exec(); answer = [told.has_error(), told.error().message(), "
        "told.error().code() == pb_utils.TritonError.NOT_FOUND, len(told.output_tensors())]"
    ),
    "call: response parameters": scripted(
        "told = ask('peer', \"response = pb_utils.InferenceResponse(said(1).output_tensors(), parameters={'a': 1})\")"
        ".exec(); answer = json.loads(told.parameters())"
    ),
    "call: decoupled, said to be": scripted(
        "answer = [read(one) for one in ask('streams', 'sender = request.get_response_sender(); "
        "[sender.send(said(n)) for n in range(3)]; sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)')"
        ".exec(decoupled=True) if one.output_tensors() or one.has_error()]"
    ),
    "call: decoupled, not said to be": scripted("answer = caught(lambda: read(ask('streams').exec()))"),
    "call: not decoupled, said to be": scripted(
        "answer = [read(one) for one in ask('peer').exec(decoupled=True) if one.output_tensors()]"
    ),
    "call: in execute, asynchronous": scripted(
        "async def all_of():\n    return await asyncio.gather(*[ask('peer', f'answer = {n}').async_exec() "
        "for n in range(5)])\nanswer = [read(one) for one in asyncio.run(all_of())]"
    ),
    "call: is the model ready": scripted(
        "answer = [pb_utils.is_model_ready('peer'), pb_utils.is_model_ready('peer', '1'), "
        "pb_utils.is_model_ready('peer', '2'), pb_utils.is_model_ready('nobody')]"
    ),
    "call: load what is not there": scripted("answer = caught(lambda: pb_utils.load_model('nobody'))"),
    "call: unload what is not there": scripted("answer = caught(lambda: pb_utils.unload_model('nobody'))"),
    "decoupled over infer": scripted(
        "request.get_response_sender().send(said(1), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)", "streams"
    ),
    "completed: metadata": Exchange("/v2/models/completed"),
    "completed: config": Exchange("/v2/models/completed/config"),
    "completed: asked": Exchange(
        "/v2/models/completed/infer",
        {"inputs": [{"name": "A", "shape": [2, 2], "datatype": "INT32", "data": [[1, 2], [3, 4]]}]},
    ),
    "script: metadata": Exchange("/v2/models/script"),
    "rows: one": _numbers("rows", "FP32", [1, 2], [1, 2]),
    "rows: three": _numbers("rows", "FP32", [3, 2], [1, 2, 3, 4, 5, 6]),
    "rows: too many": _numbers("rows", "FP32", [5, 2], [0] * 10),
    "rows: none": _numbers("rows", "FP32", [0, 2], []),
    "rows: one output": _numbers("rows", "FP32", [2, 2], [1, 2, 3, 4], outputs=[{"name": "ROWS"}]),
    "rejects: nothing": _numbers("rejects", "INT32", [1], [5]),
    "text: empty": _typed("BYTES", [2], ["", ""]),
    "text: no element": _typed("BYTES", [0], []),
    "text: not ASCII": _typed("BYTES", [2], ["\u0444\u20ac\U0001f600", "a\u0000b"]),
    "text: empty in binary": _typed_binary("BYTES", [1], _text(b"")),
    "text: prefix and bytes": _typed_binary("BYTES", [2], _text("é".encode(), b"")),
    "text: not UTF-8 in binary": _typed_binary("BYTES", [1], _text(b"\xff\xfe")),
    "half in binary": _typed_binary("FP16", [3], struct.pack("<3e", 1.5, -0.0, 65504)),
    "brain half in binary": _typed_binary("BF16", [2], b"\x81\x3f\x00\xc0"),
    "bool": _typed("BOOL", [3], [True, False, True]),
}
for _index, _code in enumerate(_CODES):
    REQUESTS[f"code: {_code}"] = _numbers("rejects", "INT32", [1], [-1 - _index])
for _word, _low, _high in (
    ("INT8", -128, 127),
    ("INT16", -(2**15), 2**15 - 1),
    ("INT32", -(2**31), 2**31 - 1),
    ("INT64", -(2**63), 2**63 - 1),
    ("UINT8", 0, 255),
    ("UINT16", 0, 2**16 - 1),
    ("UINT32", 0, 2**32 - 1),
    ("UINT64", 0, 2**64 - 1),
    ("FP32", -1.5, 2.0**100),
    ("FP64", -1e-300, 0.1),
):
    REQUESTS[f"limits of {_word}"] = _typed(_word, [2], [_low, _high])
    REQUESTS[f"scalar-like {_word}"] = _typed(_word, [1], [1])


def answers(port: int) -> dict[str, dict[str, Any]]:
    """What the server on ``port`` answers to each of ``REQUESTS``."""
    said: dict[str, dict[str, Any]] = {}
    for name, exchange in REQUESTS.items():
        ask = Asker(port)
        try:
            said[name] = told(exchange.send(ask))
        except httpx.TimeoutException:
            said[name] = {"status": 0}
        finally:
            ask.close()
    return said


if __name__ == "__main__":
    print(json.dumps(answers(int(sys.argv[1])), indent=1, ensure_ascii=False, sort_keys=True))  # noqa: T201 - its purpose
