"""The spans of a request, as a real Triton makes them and as Bident does."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.triton import RealTriton
from benchmarks.servers import Bident, Server
from otlp_receiver import OtlpReceiver, Received
from real_triton import make_triton

TRACE, CLIENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TENSORS = """
input [ { name: "X", data_type: TYPE_FP32, dims: [ -1 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ -1 ] } ]
"""
ENSEMBLE = """
ensemble_scheduling { step [
  { model_name: "asks", model_version: -1, input_map { key: "X" value: "X" }, output_map { key: "Y" value: "M" } },
  { model_name: "leaf", model_version: -1, input_map { key: "X" value: "M" }, output_map { key: "Y" value: "Y" } }
] }
"""
LEAF = """
import json
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([self.answer(request)]) for request in requests]

    def answer(self, request):
        json.loads(request.trace().get_context())  # it fails where there is none
        return pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy())
"""
ASKS = (
    LEAF
    + """
    def answer(self, request):
        asked = pb_utils.InferenceRequest(
            model_name="leaf",
            requested_output_names=["Y"],
            inputs=[pb_utils.get_input_tensor_by_name(request, "X")],
            trace=request.trace(),
        ).exec()
        return asked.output_tensors()[0]
"""
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ensemble of a model that asks another, and of that other one."""
    folder = tmp_path_factory.mktemp("spans")
    for name, source in (("leaf", LEAF), ("asks", ASKS), ("both", "")):
        (folder / name / "1").mkdir(parents=True)
        kind = 'backend: "python"' if source else f'platform: "ensemble" {ENSEMBLE}'
        (folder / name / "config.pbtxt").write_text(f"{kind} {TENSORS}")
        if source:
            (folder / name / "1" / "model.py").write_text(source)
    return folder


def asked(server: Server, receiver: OtlpReceiver) -> dict[str, Any]:
    """All that the server says of one request within a larger trace, by the way from the client's span to each."""
    body = {"id": "mine", "inputs": [{"name": "X", "shape": [2], "datatype": "FP32", "data": [1, 2]}]}
    headers = {"traceparent": f"00-{TRACE}-{CLIENT}-01", "tracestate": "a=b"}
    request = urllib.request.Request(server.url("/v2/models/both/infer"), json.dumps(body).encode(), headers)
    with server, urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.status == 200
        receiver.wait(lambda: len(receiver.spans) == 8, "all spans of the request")
    assert {span.trace_id for span in receiver.spans} == {TRACE}
    return dict(_said(receiver, CLIENT, ""))


def _said(receiver: OtlpReceiver, parent: str, way: str) -> Any:
    for number, span in enumerate(receiver.below(parent)):
        here = f"{way}/{number}:{span.name}"
        yield here, (sorted(span.events), _of_triton(span))
        yield from _said(receiver, span.span_id, here)


def _of_triton(span: Received) -> dict[str, Any]:
    return {name: value for name, value in span.attributes.items() if name.startswith("triton.")}


@pytest.mark.timeout(300)
def test_the_same_spans(repository: Path, tmp_path: Path) -> None:
    make_triton()
    found = []
    for kind in (RealTriton, Bident):
        with OtlpReceiver() as receiver:
            mode = ("mode=opentelemetry", "level=TIMESTAMPS", "rate=0", f"opentelemetry,url={receiver.url}")
            flags = [f"--trace-config={option}" for option in (*mode, "opentelemetry,bsp_schedule_delay=50")]
            found.append(asked(kind(repository, tmp_path / f"{kind.__name__}.log", *flags), receiver))

    triton, bident = found
    assert len(triton) == 8
    assert bident == triton
