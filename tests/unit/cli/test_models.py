"""``bident ls``, ``ps``, ``show``, ``load`` and ``unload`` against a small v2 server."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from bident.local.record import STATE_DIR, Record
from tests.unit.cli.conftest import Bident, FakeModel, FakeServer, iris, tensor


def counted(count: int, ns: int) -> dict[str, int]:
    return {"count": count, "ns": ns}


def statistics(name: str, requests: int) -> dict[str, object]:
    return {
        "name": name,
        "version": "1",
        "last_inference": int((time.time() - 130) * 1000) if requests else 0,
        "inference_count": requests * 2,
        "execution_count": requests // 2,
        "inference_stats": {
            "success": counted(requests, requests * 3_000_000),
            "fail": counted(1, 10),
            "queue": counted(requests, requests * 1_000_000),
            "compute_input": counted(requests, requests * 250_000),
            "compute_infer": counted(requests, requests * 1_500_000),
            "compute_output": counted(requests, requests * 250_000),
        },
    }


def pending(name: str, count: int) -> str:
    return f'nv_inference_pending_request_count{{model="{name}",version="1"}} {count}\n'


def test_ls_tells_loaded_failed_and_idle_models_apart(bident: Bident, server: FakeServer) -> None:
    server.models |= {"broken": iris(), "idle": iris(), "fake": iris()}
    server.models["broken"].state, server.models["broken"].reason = "UNAVAILABLE", "no [model] file"
    server.models["idle"].state = ""
    server.models["fake"].config = {
        "backend": "fil",
        "max_batch_size": 16,
        "parameters": {"synthetic_weights": {"string_value": "seed 0"}},
    }
    result = bident("ls", "--url", server.url)
    assert result.code == 0
    lines = {line.split()[0]: line for line in result.out.splitlines() if line.strip()}
    assert "READY" in lines["iris"]
    assert "dynamic, up to 8" in lines["iris"]
    assert "no [model] file" in lines["broken"]
    assert "not loaded" in lines["idle"]
    assert "synthetic weights" in lines["fake"]
    assert "as sent, up to 16" in lines["fake"]


def test_ls_of_an_empty_repository_says_how_to_fill_it(bident: Bident, server: FakeServer) -> None:
    server.models.clear()
    assert "bident zoo build" in bident("ls", "--url", server.url).out


def test_json_is_the_servers_own(bident: Bident, server: FakeServer) -> None:
    server.stats = [statistics("iris", 4)]
    assert json.loads(bident("ls", "--url", server.url, "--json").out) == [
        {"engine": "tensor", "name": "iris", "version": "1", "state": "READY", "reason": ""}
    ]
    assert json.loads(bident("ps", "--url", server.url, "--json").out) == [
        {"engine": "tensor", **entry} for entry in server.stats
    ]
    assert json.loads(bident("show", "iris", "--url", server.url, "--json").out)["config"]["backend"] == "onnxruntime"


def test_ps_splits_the_time_of_a_request(bident: Bident, server: FakeServer) -> None:
    server.stats = [statistics("iris", 4), statistics("unasked", 0)]
    server.metrics = pending("iris", 7)
    Path(STATE_DIR).mkdir()
    record = Record(1, 0.0, server.url, server.url, "127.0.0.1", "none", 30, "log")
    record.write(Path(STATE_DIR))
    result = bident("ps", "--url", server.url)
    rows = {line.split()[0]: line.split() for line in result.out.splitlines() if line.strip()}
    assert rows["iris"][1:9] == ["1", "4", "1", "4.0", "3.000", "1.000", "2.000", "7"]
    assert "2 min ago" in result.out
    assert "never" in " ".join(rows["unasked"])


def test_ps_says_what_loads_and_what_lacks_instances(bident: Bident, server: FakeServer) -> None:
    server.models |= {"slow": iris(), "gone": iris(), "halved": iris()}
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 150))
    server.models["slow"].state, server.models["slow"].reason = "LOADING", f"loading since {moment}"
    server.models["gone"].state, server.models["gone"].reason = "UNAVAILABLE", "1 of 1 instances: [dead]"
    server.models["halved"].reason = "1 of 2 instances: dead"
    nothing_loaded = bident("ps", "--url", server.url).out
    assert nothing_loaded.startswith("Loading:\n  slow 1: loading for 2 min\n")
    server.stats = [statistics("iris", 4)]
    result = bident("ps", "--url", server.url).out
    assert "iris" in result
    assert "Loading:\n  slow 1: loading for 2 min\n" in result
    assert "Not available:\n  gone 1: 1 of 1 instances: [dead]\n" in result
    assert "Not every instance is there:\n  halved 1: 1 of 2 instances: dead\n" in result


def test_show_describes_the_model_and_gives_a_request_that_works(bident: Bident, server: FakeServer) -> None:
    server.models["fake"] = FakeModel(
        inputs=[tensor("a", "INT64", -1, 2), tensor("flag", "BOOL", -1, 1), tensor("text", "BYTES", -1, 1)],
        outputs=[tensor("y", "FP32", -1, 3)],
        config={
            "max_batch_size": 4,
            "output": [{"name": "y", "label_filename": "labels.txt"}],
            "parameters": {"synthetic_weights": {"string_value": "seeded"}, "k": {"string_value": "[v]"}},
        },
        answer=lambda tensors: {},
    )
    result = bident("show", "fake", "--url", server.url)
    assert result.code == 0
    assert "Synthetic weights" in result.out
    assert "has labels" in result.out
    assert "[v]" in result.out
    curl = result.out.rpartition("Try:\n")[2]
    body = json.loads(curl[curl.index("'") + 1 : curl.rindex("'")])
    assert body["inputs"][0] == {"name": "a", "shape": [1, 2], "datatype": "INT64", "data": [0, 0]}
    assert [entry["data"] for entry in body["inputs"][1:]] == [[False], [""]]
    assert f"{server.url}/v2/models/fake/infer" in curl


def test_show_of_a_large_input_suggests_a_file(bident: Bident, server: FakeServer) -> None:
    server.models["iris"].inputs = [tensor("x", "FP32", -1, 3, 224, 224)]
    assert "bident run iris FILE" in bident("show", "iris", "--url", server.url).out


def test_show_of_an_unknown_model_is_the_servers_error(bident: Bident, server: FakeServer) -> None:
    result = bident("show", "nope", "--url", server.url)
    assert result.code == 1
    assert "unknown model: 'nope'" in result.err


def test_load_and_unload(bident: Bident, server: FakeServer) -> None:
    assert bident("load", "a b", "--url", server.url).code == 0
    assert bident("unload", "iris", "--url", server.url).code == 0
    told = [path for path in server.paths if path.startswith("/v2/repository/models/")]
    assert told == [
        "/v2/repository/models/a%20b/load",
        "/v2/repository/models/iris/unload",
    ]


def test_unload_of_what_was_not_loaded_says_so(bident: Bident, server: FakeServer) -> None:
    result = bident("unload", "nope", "--url", server.url)
    assert (result.code, result.err) == (1, "bident: nothing was loaded under the name 'nope' (loaded: iris)\n")


def test_load_where_it_is_not_allowed_says_how_to_allow_it(bident: Bident, server: FakeServer) -> None:
    server.refusal = (503, "explicit model load / unload is not allowed if polling is enabled")
    result = bident("load", "iris", "--url", server.url)
    assert result.code == 1
    assert "'bident up --model-control-mode=explicit' does that" in result.err
    # The server of this folder keeps its other flags.
    Path(STATE_DIR).mkdir()
    flags = ("--id=x", "--model-control-mode=poll")
    Record(1, 0.0, server.url, "", "127.0.0.1", "poll", 30, "log", flags).write(Path(STATE_DIR))
    result = bident("load", "iris", "--url", server.url)
    assert "'bident restart --id=x --model-control-mode=explicit' does that" in result.err


def test_an_answer_that_is_not_v2(bident: Bident, server: FakeServer) -> None:
    server.refusal = (502, "bad gateway")
    assert bident("ls", "--url", server.url).err == "bident: bad gateway\n"


def test_messages_come_without_what_says_nothing(bident: Bident, server: FakeServer) -> None:
    server.refusal = (400, "[request id: <id_unknown>] unexpected shape;\n")
    assert bident("ls", "--url", server.url).err == "bident: unexpected shape\n"


@pytest.mark.parametrize("body", [b"<html>", b'{"detail": "Not Found"}', b"[]"])
def test_another_kind_of_server_is_named(bident: Bident, server: FakeServer, body: bytes) -> None:
    server.answer = lambda path, headers, sent: (404, {}, body)  # type: ignore[method-assign]
    result = bident("ls", "--url", server.url)
    assert result.code == 1
    assert f"{server.url} answered 404 with something that is not the v2 protocol: another kind of" in result.err


def test_where_nothing_was_started_the_server_that_is_used_is_named(
    bident: Bident, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bident.cli.target.DEFAULT_URL", server.url)
    result = bident("ls")
    assert result.code == 0
    assert result.err.startswith(f"using {server.url} (not started from this folder)\n")
    assert bident("ls", "--url", server.url).err == ""


def test_somebody_elses_server_does_not_stand_in_for_one_that_died(
    bident: Bident, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bident.cli.target.DEFAULT_URL", server.url)
    Path(STATE_DIR).mkdir()
    Record(os.getpid(), 1.0, server.url, "", "127.0.0.1", "none", 30, "log").write(Path(STATE_DIR))
    result = bident("ls")
    assert result.code == 1
    assert "it ended unexpectedly, see 'bident logs'; start it with 'bident up'" in result.err
    assert server.paths == []


@pytest.mark.parametrize("words", [["ls", "--url", "ftp://x"], ["ls", "more"], ["run"], ["up", "--htp-port=1"]])
def test_a_wrong_command_line_is_2(bident: Bident, words: list[str]) -> None:
    assert bident(*words).code == 2
