"""Names, folders and files made to harm: none costs more than the model that it belongs to."""

from __future__ import annotations

import base64
import json
import os
import signal
from pathlib import Path

import pytest
from asking import Asker, x
from model_folders import onnx_mark, parameters, write_identity, write_model, x_to_y
from serving import Launch, eventually
from wire_http import Wire, request

SENT = {"file:1/model.onnx": base64.b64encode(onnx_mark(5).SerializeToString()).decode()}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "repository"
    made.mkdir()
    return made


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    made = tmp_path / "temporary"
    made.mkdir()
    return made


def test_no_name_of_an_override_deletes_another(launch: Launch, repository: Path, temporary: Path) -> None:
    server = launch(repository, "--model-control-mode=explicit", environment={"TMPDIR": str(temporary)})
    ask = Asker(server.port)
    assert ask.load("sent", config="{}", **SENT).status == 200
    before = sorted(temporary.rglob("*"))
    body = json.dumps({"parameters": {"config": "{}", **SENT}}).encode()
    for name in (".", "%2e", "..", "%2e%2e", ".hidden", "lost+found", "a%2f..", "%00"):
        with Wire(server.port) as wire:  # other clients would tidy the path
            wire.send(request(f"/v2/repository/models/{name}/load", body))
            wire.read().refused("odel name", status=400)
    assert sorted(temporary.rglob("*")) == before
    assert ask.infer("sent", x("FP32", [1, 2], [1, 2])).data("first") == [6.0, 7.0]


def test_clashing_files_of_an_override_are_the_senders_mistake(launch: Launch, repository: Path) -> None:
    ask = Asker(launch(repository, "--model-control-mode=explicit").port)
    clash = {"file:1": "AAAA", "file:1/model.onnx": "AAAA"}
    ask.load("clash", config="{}", **clash).refused('"1"', "also the folder", status=400)


def test_folders_that_cannot_be_models_cost_only_themselves(launch: Launch, repository: Path) -> None:
    write_identity(repository, "good")
    bad = repository / os.fsdecode(b"bad\xff")
    for version in ("1", "2"):
        (bad / version).mkdir(parents=True)
    (repository / "loop").symlink_to("loop")
    pipe = write_identity(repository, "pipe") / "config.pbtxt"
    pipe.unlink()
    os.mkfifo(pipe)
    server = launch(repository, "--exit-on-error=false", wait=False)
    ask = Asker(server.port)
    eventually(lambda: "model versions ready" in server.log_text, "started")

    assert ask.infer("good", x("FP32", [1])).data() == [1.0]
    index = ask.index()
    assert index.keys() == {"good", "pipe"}
    assert "not a regular file" in index["pipe"][0]["reason"]
    assert "is not UTF-8" in server.log_text
    assert "Too many levels of symbolic links" in server.log_text
    assert "Traceback" not in server.log_text


@pytest.mark.parametrize(
    ("version", "status", "words"),
    [
        ("9" * 5000, 400, "version should be an integral value"),
        ("0", 404, "is not found (versions of this model: 1)"),
        ("7", 404, "is not found (versions of this model: 1)"),
    ],
    ids=["vast", "0", "absent"],
)
def test_numbers_that_are_no_versions_are_refused(
    launch: Launch, repository: Path, version: str, status: int, words: str
) -> None:
    write_identity(repository, "m")
    ask = Asker(launch(repository).port)
    ask.get(f"/v2/models/m/versions/{version}").refused(words, status=status)
    ask.infer("m", x("FP32", [1]), version=version).refused(words, status=status)
    assert ask.get(f"/v2/models/m/versions/{version}/ready").status == 400


def test_a_version_with_zeros_before_it_is_that_version(launch: Launch, repository: Path) -> None:
    write_identity(repository, "m")
    ask = Asker(launch(repository).port)
    assert ask.infer("m", x("FP32", [1]), version="01").data() == [1.0]


def test_what_a_killed_server_has_left_goes_at_the_next_start(
    launch: Launch, repository: Path, temporary: Path
) -> None:
    environment = {"TMPDIR": str(temporary)}
    killed, alive = (launch(repository, "--model-control-mode=explicit", environment=environment) for _ in range(2))
    for server in (killed, alive):
        assert Asker(server.port).load("sent", config="{}", **SENT).status == 200
    assert len(list(temporary.rglob("model.onnx"))) == 2
    killed.signal(signal.SIGKILL)
    killed.wait(10)

    launch(repository, "--model-control-mode=explicit", environment=environment)

    assert len(list(temporary.rglob("model.onnx"))) == 1
    assert Asker(alive.port).load("sent", config="{}", **SENT).status == 200


def test_a_graceful_stop_closes_every_instance(launch: Launch, repository: Path, tmp_path: Path) -> None:
    journal = tmp_path / "closed"
    more = parameters(close_journal=str(journal)) + "instance_group { count: 3 }"
    write_model(repository, "m", f'backend: "gated"\n{x_to_y()}{more}')
    server = launch(repository)
    assert Asker(server.port).infer("m", x("FP32", [1])).data() == [1.0]

    server.signal(signal.SIGTERM)

    assert server.wait(10) == 0
    assert journal.read_text().splitlines() == ['"closed"'] * 3
