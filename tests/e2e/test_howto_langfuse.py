"""docs/how-to/langfuse.md, and what tracing-and-logs.md says of OpenTelemetry: typed as it stands there."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import Reader, sections
from serving import eventually

from otlp_receiver import OtlpReceiver

SEND = sections("tracing-and-logs.md")["Send"]
CONNECT = sections("langfuse.md")["Connect"]
KEYS = "pk-lf-...:sk-lf-..."
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver(authorization=f"Basic {base64.b64encode(KEYS.encode()).decode()}") as made:
        yield made


def test_spans_of_a_request_within_a_larger_trace(tmp_path: Path, iris: Path, receiver: OtlpReceiver) -> None:
    receiver.authorization = ""
    start, ask = SEND.of("sh")
    reader = Reader(tmp_path, iris)
    soon = " --trace-config opentelemetry,bsp_schedule_delay=20"
    with reader.starts(start.strip().replace("http://127.0.0.1:4318", receiver.host) + soon):
        reader.types(ask)
        eventually(lambda: len(receiver.spans) == 3, "the spans of the request")

    (client,) = re.findall(r"traceparent: 00-\w{32}-(\w{16})-", ask)
    assert receiver.tree(client) == {"InferRequest": {"iris_sklearn": {"compute": {}}}}


def test_what_the_file_says_a_server_does(
    tmp_path: Path, iris: Path, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the page has it, with servers in the foreground in place of ``bident restart``."""
    (write,), (keys, restart, check) = (block.strip().splitlines() for block in CONNECT.of("sh"))
    reader = Reader(tmp_path, iris)
    where = f"--set url={receiver.host} --url http://{reader.address('8000')} --text-url {NOBODY}"
    start = "bident serve tensor --model-repository models"
    with reader.starts(start):
        reader.types(f"{write} {where}")
    source, _, _ = restart.partition(" && ")
    for line in reader.types(f"{keys}\n{source}\nenv").splitlines():
        name, _, value = line.partition("=")
        if name.startswith(("OTEL_", "BIDENT_", "LANGFUSE_")):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    with reader.starts(start):
        said: Any = json.loads(reader.types(f"{check} {where} --json"))
        reader.types(SEND.of("sh")[1])
        eventually(lambda: receiver.named("iris_sklearn"), "the span of the model")

    assert [hop["works"] for hop in said["hops"]] == [True, True, True], said
    assert receiver.headers[-1]["x-langfuse-ingestion-version"] == "4"
