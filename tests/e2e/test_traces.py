"""Traces of a running server: their files, their settings through tritonclient, and the context that models see."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import tritonclient.http as httpclient
from asking import Asker, tensor
from model_folders import write_identity
from python_repository import write_script
from serving import Launch

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def traced(file: Path, rate: int = 1) -> tuple[str, ...]:
    return (f"--trace-config=triton,file={file}", "--trace-config=level=TIMESTAMPS", f"--trace-config=rate={rate}")


def entries(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file.read_text())
    return found


def test_a_server_that_ends_has_written_every_trace(tmp_path: Path, launch: Launch) -> None:
    write_identity(tmp_path / "models", "m")
    server = launch(tmp_path / "models", *traced(tmp_path / "t"))
    ask = Asker(server.port)
    for _ in range(3):
        assert ask.infer("m", tensor("X", "FP32", [1], [1.0])).status == 200
    ask.close()
    server.signal(signal.SIGTERM)

    assert server.wait() == 0
    assert [entry["id"] for entry in entries(tmp_path / "t") if "model_name" in entry] == [1, 2, 3]


def test_the_flags_of_old_still_work(tmp_path: Path, launch: Launch) -> None:
    write_identity(tmp_path / "models", "m")
    old = ("--trace-level=TIMESTAMPS", "--trace-rate=2", "--trace-count=1", "--trace-log-frequency=5")
    server = launch(tmp_path / "models", f"--trace-file={tmp_path / 't'}", *old)
    ask = Asker(server.port)

    said = ask.get("/v2/trace/setting").json
    assert (said["trace_level"], said["trace_rate"], said["trace_count"]) == (["TIMESTAMPS"], "2", "1")
    assert (said["log_frequency"], said["trace_file"]) == ("5", str(tmp_path / "t"))
    assert "--trace-level is deprecated, use --trace-config level=<level>" in server.log_text
    ask.close()


def test_tritonclient_reads_and_changes_the_settings(tmp_path: Path, launch: Launch) -> None:
    write_identity(tmp_path / "models", "m")
    server = launch(tmp_path / "models", *traced(tmp_path / "t", rate=7))
    client = httpclient.InferenceServerClient(f"127.0.0.1:{server.port}")

    assert client.get_trace_settings()["trace_rate"] == "7"
    assert client.update_trace_settings("m", {"trace_rate": "2", "trace_level": ["OFF"]})["trace_level"] == ["OFF"]
    assert client.get_trace_settings()["trace_level"] == ["TIMESTAMPS"]
    assert client.update_trace_settings("m", {"trace_rate": None, "trace_level": None}) == client.get_trace_settings()
    assert client.update_log_settings({"log_verbose_level": 1})["log_verbose_level"] == 1
    assert client.get_log_settings()["log_verbose_level"] == 1
    client.close()


def test_a_model_sees_the_trace_that_its_client_is_part_of(tmp_path: Path, launch: Launch) -> None:
    for name in ("one", "peer"):
        write_script(tmp_path / "models", name)
    server = launch(tmp_path / "models", *traced(tmp_path / "t"))
    ask = Asker(server.port)

    def context(code: str, **headers: str) -> Any:
        body = {"inputs": [tensor("CODE", "BYTES", [1], [code])]}
        said = json.loads(ask.post("/v2/models/one/infer", body, headers).data("ANSWER")[0])
        return None if said is None else json.loads(said)

    own = "answer = request.trace().get_context()"
    asked = f"answer = read(ask('peer', '{own}', trace=request.trace()).exec())"
    larger = {"traceparent": PARENT, "tracestate": "a=b"}
    assert context(own, **larger) == context(asked, **larger) == larger
    assert context(own) is None
    assert context(own, traceparent="none") is None
    ask.close()


@pytest.mark.parametrize(
    ("flag", "fragment"),
    [
        ("--trace-config=opentelemetry,url=collector:4317", "opentelemetry,url=collector:4317: it is an http or https"),
        ("--trace-config=triton,fil=x", "there is no 'triton,fil'"),
        ("--metrics-config=summary_latency=true", "did you mean 'summary_latencies'?"),
    ],
)
def test_what_cannot_be_observed_is_said_at_the_start(tmp_path: Path, launch: Launch, flag: str, fragment: str) -> None:
    write_identity(tmp_path / "models", "m")
    server = launch(tmp_path / "models", flag, wait=False)

    assert server.wait() == 1
    assert fragment in server.log_text.replace('\\"', '"')
