"""Requests of a running server as spans: an ensemble and its steps in the trace of who asked, over both protocols."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from asking import Asker, tensor
from model_folders import write_identity
from python_repository import write_script
from serving import Launch, eventually

from benchmarks.ports import free_port
from otlp_receiver import OtlpReceiver, read_json

TRACE, CLIENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{TRACE}-{CLIENT}-01", "tracestate": "a=b"}
RUN = {"compute": {}}
PIPELINE = """
platform: "ensemble"
input [ { name: "X", data_type: TYPE_FP32, dims: [ -1 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ -1 ] } ]
ensemble_scheduling { step [
  { model_name: "first", model_version: -1, input_map { key: "X" value: "X" }, output_map { key: "Y" value: "M" } },
  { model_name: "second", model_version: -1, input_map { key: "X" value: "M" }, output_map { key: "Y" value: "Y" } }
] }
"""


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as made:
        yield made


def flags(url: str, *more: str) -> tuple[str, ...]:
    mode = ("mode=opentelemetry", f"opentelemetry,url={url}", "opentelemetry,bsp_schedule_delay=20", *more)
    return tuple(f"--trace-config={option}" for option in mode)


def pipeline(repository: Path) -> Path:
    for name in ("first", "second"):
        write_identity(repository, name)
    (repository / "pipeline" / "1").mkdir(parents=True)
    (repository / "pipeline" / "config.pbtxt").write_text(PIPELINE)
    return repository


def test_an_ensemble_and_its_steps_are_part_of_the_clients_trace(
    tmp_path: Path, launch: Launch, receiver: OtlpReceiver
) -> None:
    server = launch(pipeline(tmp_path / "models"), *flags(receiver.url, "level=TIMESTAMPS", "rate=0"))
    ask = Asker(server.port)
    body = {"id": "mine", "inputs": [tensor("X", "FP32", [2], [31.25, 2.0])]}
    assert ask.post("/v2/models/pipeline/infer", body).status == 200  # part of no trace, and rate=0: none of its own
    assert ask.post("/v2/models/pipeline/infer", body, PARENT).status == 200
    ask.close()
    eventually(lambda: len(receiver.spans) == 6, "all spans of the request")

    assert {span.trace_id for span in receiver.spans} == {TRACE}
    assert receiver.tree(CLIENT) == {"InferRequest": {"pipeline": {"first": RUN, "second": RUN}}}
    (whole,) = receiver.named("pipeline")
    assert [span.name for span in receiver.below(whole.span_id)] == ["first", "second"]
    assert whole.attributes["triton.request_id"] == "mine"
    (first,) = receiver.named("first")
    assert first.attributes["langfuse.observation.type"] == "span"
    assert first.attributes["langfuse.observation.metadata.batch_size"] == 1
    assert first.attributes["langfuse.observation.metadata.compute_us"] >= 0
    assert not receiver.says("31.25")


def test_over_grpc_with_tensors(tmp_path: Path, launch: Launch, receiver: OtlpReceiver) -> None:
    write_identity(tmp_path / "models", "m")
    server = launch(tmp_path / "models", *flags(receiver.url, "level=TENSORS", "rate=1"))
    given = grpcclient.InferInput("X", [20], "FP32")
    given.set_data_from_numpy(np.arange(20, dtype=np.float32))
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        client.infer("m", [given], headers=PARENT)
    eventually(lambda: len(receiver.spans) == 3, "all spans of the request")

    assert receiver.tree(CLIENT) == {"InferRequest": {"m": RUN}}
    (entry,) = receiver.named("InferRequest")
    assert entry.events[:2] == ["GRPC_WAITREAD_START", "GRPC_WAITREAD_END"]
    (model,) = receiver.named("m")
    for side, name in (("input", "X"), ("output", "Y")):
        said = {"name": name, "datatype": "FP32", "shape": [20], "first": [float(each) for each in range(16)]}
        assert read_json(model, f"langfuse.observation.{side}") == [said]


def test_a_python_model_sees_its_own_span_and_what_it_asks_is_below(
    tmp_path: Path, launch: Launch, receiver: OtlpReceiver
) -> None:
    for name in ("one", "peer"):
        write_script(tmp_path / "models", name)
    server = launch(tmp_path / "models", *flags(receiver.url, "level=TIMESTAMPS", "rate=1"))
    ask = Asker(server.port)
    code = "answer = read(ask('peer', 'answer = request.trace().get_context()', trace=request.trace()).exec())"
    said = ask.post("/v2/models/one/infer", {"inputs": [tensor("CODE", "BYTES", [1], [code])]}, PARENT)
    context: Any = json.loads(json.loads(said.data("ANSWER")[0]))
    ask.close()
    eventually(lambda: len(receiver.spans) == 5, "all spans of the request")

    assert receiver.tree(CLIENT) == {"InferRequest": {"one": {"compute": {}, "peer": RUN}}}
    (peer,) = receiver.named("peer")
    assert context == {"traceparent": f"00-{TRACE}-{peer.span_id}-01", "tracestate": "a=b"}


def test_settings_are_told_and_changed_as_those_of_files_are(
    tmp_path: Path, launch: Launch, receiver: OtlpReceiver
) -> None:
    write_identity(tmp_path / "models", "m")
    server = launch(tmp_path / "models", *flags(receiver.url))
    client = httpclient.InferenceServerClient(f"127.0.0.1:{server.port}")
    given = httpclient.InferInput("X", [1], "FP32")
    given.set_data_from_numpy(np.zeros(1, np.float32))

    assert "nothing is traced without --trace-config level=TIMESTAMPS" in server.log_text
    client.infer("m", [given])
    assert client.update_trace_settings("m", {"trace_level": ["TIMESTAMPS"], "trace_rate": "1"}) == {
        "trace_level": ["TIMESTAMPS"],
        "trace_rate": "1",
        "trace_count": "-1",
        "trace_mode": "opentelemetry",
        "url": receiver.url,
        "bsp_max_queue_size": "2048",
        "bsp_schedule_delay": "20",
        "bsp_max_export_batch_size": "512",
    }
    client.infer("m", [given])
    client.close()
    eventually(lambda: receiver.named("m"), "a span")
    assert len(receiver.spans) == 3
    assert receiver.spans[0].resource["service.name"] == "bident-tensor"


def test_a_receiver_that_is_down_is_one_warning_and_nothing_else(tmp_path: Path, launch: Launch) -> None:
    write_identity(tmp_path / "models", "m")
    url = f"http://127.0.0.1:{free_port()}/v1/traces"
    server = launch(tmp_path / "models", *flags(url, "level=TIMESTAMPS", "rate=1"))
    ask = Asker(server.port)
    for _ in range(1000):
        assert ask.infer("m", tensor("X", "FP32", [1], [1.0])).status == 200
    ask.close()
    eventually(lambda: f"spans are not taken by {url}" in server.log_text, "a warning")
    server.stop()

    assert len(re.findall(r"spans are not taken|retrying in|opentelemetry", server.log_text)) == 2, server.log_text
    assert "Traceback" not in server.log_text
