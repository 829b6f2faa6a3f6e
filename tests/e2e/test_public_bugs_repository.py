"""What people report of model repositories: stray folders, config text, corrupt files, overrides, health, ports."""

from __future__ import annotations

import base64
import json
import socket
from pathlib import Path

import pytest
from asking import Asker, x
from bug_models import Shared
from model_folders import onnx_identity, onnx_mark, write_identity, write_model, x_to_y
from serving import Gate, Launch, eventually

GOOD = f'backend: "onnxruntime"\nmax_batch_size: 4\n{x_to_y(dims="[ 3 ]")}'
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "repository"
    made.mkdir()
    return made


def asker(launch: Launch, repository: Path, *flags: str) -> Asker:
    return Asker(launch(repository, *flags).port)


# Folders that are no models.


def test_hidden_and_stray_things_are_no_models(launch: Launch, repository: Path, tmp_path: Path) -> None:
    write_identity(repository, "good")
    for hidden in (".ipynb_checkpoints", "lost+found", ".git", "..2026_01_01"):
        (repository / hidden / "1").mkdir(parents=True)
    (repository / ".DS_Store").write_bytes(b"\0\1")
    (repository / "README.md").write_text("models")
    (repository / "..data").symlink_to("..2026_01_01")
    (repository / "good" / "1" / ".model.onnx.swp").write_text("b0VIM")
    (repository / "good" / ".git").mkdir()
    elsewhere = write_identity(tmp_path / "elsewhere", "linked")
    (repository / "linked").symlink_to(elsewhere)
    ask = asker(launch, repository)
    assert ask.get("/v2/health/ready").status == 200
    assert {name: rows[0]["state"] for name, rows in ask.index().items()} == {"good": "READY", "linked": "READY"}
    assert ask.infer("linked", x("FP32", [1])).data() == [1.0]


# Names that differ between folder and config.


@pytest.mark.parametrize(("folder", "name"), [("churn", "churn_v2"), ("churn ", "churn")])
def test_a_folder_and_a_config_that_disagree_are_both_named(shared: Shared, ask: Asker, folder: str, name: str) -> None:
    config = f'name: "{name}"\n{GOOD}'
    shared.offer(folder, config, model_onnx=onnx_identity(["N", 3])).refused(f"'{folder}'", f"'{name}'", "rename")
    assert ask.index()[folder][0]["state"] == "UNAVAILABLE"


def test_a_config_without_a_name_takes_the_folders(shared: Shared, ask: Asker) -> None:
    assert shared.offer("nameless", GOOD, model_onnx=onnx_identity(["N", 3])).status == 200
    assert ask.get("/v2/models/nameless/config").json["name"] == "nameless"


# Files misnamed or a level too deep, reported as a backend that cannot be guessed.


@pytest.mark.parametrize(
    ("files", "fragments"),
    [
        (["config.pbtxt.txt", "1/modell.onnx"], ["rename 'config.pbtxt.txt' to 'config.pbtxt'"]),
        (["deep/1/model.onnx"], ["one level too deep"]),
        (["1/Model.ONNX"], ["rename 'Model.ONNX' to 'model.onnx'", "Looked for"]),
        (["model.onnx"], ["move 'model.onnx' into a version folder"]),
        (["1/model.onnx.txt"], ["rename 'model.onnx.txt' to 'model.onnx'"]),
        (["01/model.onnx"], ["rename the version folder '01' to '1'"]),
    ],
    ids=lambda value: value[0] if "/" in value[0] or "." in value[0] else None,
)
def test_a_file_that_is_nearly_in_its_place_is_found_and_the_way_is_shown(
    shared: Shared, ask: Asker, files: list[str], fragments: list[str]
) -> None:
    name = f"near_{'_'.join(files).replace('/', '_').replace('.', '_')}"
    for file in files:
        path = shared.repository / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(onnx_identity(["N", 3]).SerializeToString())
    ask.load(name).refused(f"load failed for model '{name}'", *fragments)


def test_a_file_of_another_name_is_served_when_the_config_says_so(shared: Shared, ask: Asker) -> None:
    config = f'{GOOD}default_model_filename: "net.bin"'
    assert shared.offer("own_file", config, net_bin=onnx_identity(["N", 3])).status == 200
    (shared.repository / "own_file" / "1" / "net.bin").rename(shared.repository / "own_file" / "1" / "net2.bin")
    ask.load("own_file").refused("'net.bin'", "'net2.bin'")
    assert ask.infer("own_file", x("FP32", [1, 2, 3], [1, 3])).data() == [1.0, 2.0, 3.0], "the old one still serves"


# The text of config.pbtxt.

ACCEPTED = {
    "comment-in-cyrillic": "# комментарий ✓\n" + GOOD,
    "byte-order-mark": "\ufeff" + GOOD,
    "windows-lines": GOOD.replace("\n", "\r\n"),
    "repeated-dims": GOOD.replace("dims: [ 3 ]", "dims: 1 dims: 3"),
    "no-colon-before-list": GOOD.replace("dims: [ 3 ]", "dims: [3]"),
    "single-quotes": GOOD.replace('"X"', "'X'"),
    "joined-strings": GOOD.replace('"onnxruntime"', '"onnx" "runtime"'),
    "angle-brackets": GOOD.replace("{", "<").replace("}", ">"),
    "separators": GOOD.replace("max_batch_size: 4", "max_batch_size: 4;"),
}


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED)
def test_what_protobuf_reads_is_read(shared: Shared, ask: Asker, request: pytest.FixtureRequest, text: str) -> None:
    name = f"text_{request.node.callspec.id}"
    dims: list[object] = ["N", 1, 3] if "dims: 1" in text else ["N", 3]
    assert shared.offer(name, text, model_onnx=onnx_identity(dims)).status == 200
    assert ask.get(f"/v2/models/{name}/config").json["max_batch_size"] == 4


REFUSED = {
    "trailing-comma": (GOOD.replace("[ 3 ]", "[ 3, ]"), ["3:", "dims", "comma"]),
    "unknown-field": (GOOD + "foo: 1\n", ["5:1", '"foo"']),
    "placeholder": (GOOD.replace("4", "${max_batch_size}"), ["2:", "max_batch_size", "'${max_batch_size}'"]),
    "octal": (GOOD.replace("4", "08"), ["2:", "max_batch_size"]),
    "bare-type": (GOOD.replace("TYPE_FP32", "FP32"), ["FP32", "did you mean 'TYPE_FP32'?"]),
    "unclosed": (GOOD + "input {", ["config.pbtxt"]),
    "json": ('{"name": "x"}', ["JSON"]),
    "lfs-pointer": (POINTER, ["Git LFS pointer", "git lfs pull"]),
    "misspelt-field": (GOOD.replace("max_batch_size", "max_batchsize"), ["did you mean 'max_batch_size'?"]),
}


@pytest.mark.parametrize(("text", "fragments"), REFUSED.values(), ids=REFUSED)
def test_what_protobuf_refuses_is_refused_with_place_field_and_cure(
    shared: Shared, ask: Asker, request: pytest.FixtureRequest, text: str, fragments: list[str]
) -> None:
    name = f"refused_{request.node.callspec.id.partition('-fragments')[0]}"
    shared.offer(name, text, model_onnx=onnx_identity(["N", 3])).refused("config.pbtxt", *fragments)


# An empty repository, and one bad model among good ones.


def test_an_empty_repository_is_ready_and_has_an_empty_index(launch: Launch, repository: Path) -> None:
    ask = asker(launch, repository)
    assert ask.get("/v2/health/ready").status == 200
    assert ask.post("/v2/repository/index").json == []
    ask.infer("anything", x("FP32", [1])).refused("'anything' is not found")


def corrupt_models(repository: Path) -> dict[str, str]:
    """Four broken models beside a good one: name to what the reason must say."""
    whole = onnx_mark(1).SerializeToString()
    write_model(repository, "good", None, model_onnx=whole)
    write_model(repository, "pointer", None, model_onnx=POINTER)
    write_model(repository, "nothing", None, model_onnx=b"")
    write_model(repository, "truncated", None, model_onnx=whole[: len(whole) // 2])
    write_model(repository, "misnamed", 'name: "other"', model_onnx=whole)
    return {"pointer": "git lfs pull", "nothing": "empty", "truncated": "model.onnx", "misnamed": "'other'"}


def test_corrupt_models_end_the_start_with_a_list_of_all_of_them(launch: Launch, repository: Path) -> None:
    reasons = corrupt_models(repository)
    server = launch(repository, wait=False)
    assert server.wait() == 1
    for name, reason in reasons.items():
        (line,) = [line for line in server.log_text.splitlines() if f"failed to load '{name}'" in line]
        assert reason in line
    assert "--exit-on-error=false" in server.log_text


def test_corrupt_models_leave_the_good_ones_alone_when_told_so(launch: Launch, repository: Path) -> None:
    reasons = corrupt_models(repository)
    server = launch(repository, "--exit-on-error=false", wait=False)
    ask = Asker(server.port)
    eventually(lambda: "model versions ready" in server.log_text, "started")
    index = ask.index()
    assert index["good"] == [{"name": "good", "version": "1", "state": "READY"}]
    for name, reason in reasons.items():
        (row,) = index[name]
        assert row["state"] == "UNAVAILABLE"
        assert reason in row["reason"]
        ask.infer(name, x("FP32", [1, 2], [1, 2])).refused(f"'{name}'", reason, status=404)
    assert ask.get("/v2/health/ready").status == 400
    assert ask.infer("good", x("FP32", [1, 2], [1, 2])).data("first") == [2.0, 3.0]


def test_a_model_in_two_repositories_is_served_from_neither_and_the_index_says_why(
    launch: Launch, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write_identity(first, "twice")
    write_identity(second, "twice")
    write_identity(second, "once")
    server = launch(first, f"--model-repository={second}", "--exit-on-error=false", wait=False)
    ask = Asker(server.port)
    eventually(lambda: "model versions ready" in server.log_text, "started")
    assert ask.infer("once", x("FP32", [1])).data() == [1.0]
    (row,) = ask.index()["twice"]
    assert row["state"] == "UNAVAILABLE"
    assert "not unique across all model repositories" in row["reason"]


def test_a_config_that_cannot_be_read_costs_only_its_model(launch: Launch, repository: Path) -> None:
    write_identity(repository, "good")
    config = write_identity(repository, "unreadable") / "config.pbtxt"
    config.unlink()
    config.symlink_to(config)  # a loop: unlike a missing permission it stops root too
    server = launch(repository, "--exit-on-error=false", wait=False)
    ask = Asker(server.port)
    eventually(lambda: "model versions ready" in server.log_text, "started")
    assert ask.infer("good", x("FP32", [1])).data() == [1.0]
    assert "Too many levels of symbolic links" in ask.index()["unreadable"][0]["reason"]


# The same name, another model.


def test_a_folder_replaced_by_another_model_is_that_model_in_everything(shared: Shared, ask: Asker) -> None:
    assert shared.offer("changing", None, model_onnx=onnx_mark(1)).status == 200
    assert ask.get("/v2/models/changing").json["platform"] == "onnxruntime_onnx"
    assert ask.unload("changing").status == 200
    folder = shared.repository / "changing"
    (folder / "1" / "model.onnx").unlink()
    (folder / "config.pbtxt").write_text(f'backend: "identity"\n{x_to_y("INT8")}')
    assert ask.load("changing").status == 200
    metadata = ask.get("/v2/models/changing").json
    assert metadata["platform"] == "identity"
    assert metadata["inputs"] == [{"name": "X", "datatype": "INT8", "shape": [-1]}]
    assert ask.get("/v2/models/changing/config").json["backend"] == "identity"
    ask.infer("changing", x("FP32", [1, 2], [1, 2])).refused("data-type is 'FP32'", "expects 'INT8'")
    assert ask.infer("changing", x("INT8", [-3])).data() == [-3]
    stats = ask.get("/v2/models/changing/stats").json["model_stats"]
    assert [row["inference_count"] for row in stats] == [1]


# Overrides of the load API, accepted elsewhere without effect.


def test_an_override_takes_effect_and_shows(shared: Shared, ask: Asker) -> None:
    write_identity(shared.repository, "overridden", more="max_batch_size: 8")
    assert ask.load("overridden").status == 200
    config = {"backend": "identity", "max_batch_size": 2}
    tensors = {"data_type": "TYPE_FP32", "dims": [-1]}
    config |= {"input": [{"name": "X", **tensors}], "output": [{"name": "Y", **tensors}]}
    assert ask.load("overridden", config=json.dumps(config)).status == 200
    assert ask.get("/v2/models/overridden/config").json["max_batch_size"] == 2
    ask.infer("overridden", x("FP32", [1, 2, 3], [3, 1])).refused("batch-size must be <= 2")
    assert ask.load("overridden").status == 200, "a plain load forgets the override"
    assert ask.get("/v2/models/overridden/config").json["max_batch_size"] == 8


def test_an_override_that_says_only_what_changes_is_completed_from_the_file(shared: Shared, ask: Asker) -> None:
    assert shared.offer("partly", None, model_onnx=onnx_mark(1)).status == 200
    assert ask.load("partly", config='{"max_batch_size": 2}').status == 200
    assert ask.get("/v2/models/partly/config").json["max_batch_size"] == 2
    assert ask.infer("partly", x("FP32", [1, 2], [1, 2])).data("second") == [2.0, 3.0]


@pytest.mark.parametrize(
    ("body", "fragments"),
    [
        (b'{"config": {"max_batch_size": 2}}', ["unexpected key 'config'", '{"parameters": {"config"']),
        (b'{"parameters": {"config": {"max_batch_size": 2}}}', ["'config'", "must be a string"]),
        (b'{"parameters": {"config": "{not json"}}', ["config"]),
        (b'{"parameters": {"config": "{\\"max_batchsize\\": 2}"}}', ["max_batchsize", "did you mean"]),
        (b'{"parameters": {"konfig": "{}"}}', ["'konfig'"]),
        (b'{"parameters": {"file:1/model.onnx": "AAAA"}}', ["Load parameter 'config' must be specified"]),
        (b'{"parameters": {"config": "{}", "file:1/model.onnx": "not base64!"}}', ["not valid base64"]),
        (b'{"parameters": []}', ["'parameters'"]),
        (b"[]", ["must be a JSON object"]),
        (b"{not json", ["failed to parse"]),
    ],
)
def test_an_override_in_the_wrong_place_is_refused_and_changes_nothing(
    shared: Shared, ask: Asker, body: bytes, fragments: list[str]
) -> None:
    if "steady" not in ask.index():
        assert shared.offer("steady", None, model_onnx=onnx_mark(1)).status == 200
    ask.post("/v2/repository/models/steady/load", body).refused(*fragments)
    assert ask.infer("steady", x("FP32", [1, 2], [1, 2])).data("first") == [2.0, 3.0]


@pytest.mark.parametrize(
    "path", ["../escape", "1/../../escape", "/etc/escape", "1/../../../escape", "..\\escape", "C:x"]
)
def test_a_file_override_never_leaves_the_models_folder(shared: Shared, ask: Asker, path: str) -> None:
    content = base64.b64encode(b"harm").decode()
    ask.load("escaping", config="{}", **{f"file:{path}": content}).refused("must stay within model directory")
    assert not list(shared.repository.parent.rglob("escape"))


def test_a_model_can_be_sent_whole(ask: Asker) -> None:
    content = base64.b64encode(onnx_mark(5).SerializeToString()).decode()
    assert ask.load("sent", config="{}", **{"file:1/model.onnx": content}).status == 200
    assert ask.infer("sent", x("FP32", [1, 2], [1, 2])).data("first") == [6.0, 7.0]
    assert ask.unload("sent").status == 200
    ask.load("sent").refused("failed to load 'sent', failed to poll from model repository", status=500)


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_load_and_unload_in_another_mode_say_which_one_it_takes(launch: Launch, repository: Path, mode: str) -> None:
    write_identity(repository, "good")
    ask = asker(launch, repository, f"--model-control-mode={mode}")
    for answer in (ask.load("good"), ask.unload("good")):
        answer.refused("explicit model load / unload is not allowed", "--model-control-mode=explicit", status=503)
    assert ask.infer("good", x("FP32", [1])).data() == [1.0]


# Health while something loads, which orchestrators act on.


def test_a_slow_load_hides_nobody_else_and_is_ready_only_at_its_end(
    launch: Launch, repository: Path, gate: Gate
) -> None:
    write_identity(repository, "other")
    write_model(repository, "slow", f'backend: "gated"\n{x_to_y()}{gate.parameters(at_load=True)}')
    server = launch(repository, wait=False)
    ask = Asker(server.port)
    gate.wait_for_batches(1)
    eventually(lambda: ask.get("/v2/models/other/ready").status == 200, "the other model is ready")
    for _ in range(50):
        assert ask.get("/v2/health/live").status == 200
        assert ask.get("/v2/health/ready").status == 400
        assert ask.get("/v2/models/other/ready").status == 200
        assert ask.get("/v2/models/slow/ready").status == 400
        assert ask.infer("other", x("FP32", [1])).data() == [1.0]
    (row,) = ask.index()["slow"]
    assert row.pop("reason").startswith("loading since ")
    assert row == {"name": "slow", "version": "1", "state": "LOADING"}
    ask.infer("slow", x("FP32", [1])).refused("'slow'", status=404)
    ask.infer("slow", x("FP32", [1]), version="1").refused("not at ready state", status=503)
    gate.open()
    eventually(lambda: ask.get("/v2/health/ready").status == 200, "ready once everything is loaded")
    assert ask.infer("slow", x("FP32", [1])).data() == [1.0]


def test_an_unload_makes_the_model_unready_and_not_the_server(launch: Launch, repository: Path) -> None:
    write_identity(repository, "going")
    write_identity(repository, "staying")
    ask = asker(launch, repository, "--model-control-mode=explicit", "--load-model=*")
    assert ask.unload("going").status == 200
    assert ask.get("/v2/models/going/ready").status == 400
    assert ask.get("/v2/models/staying/ready").status == 200
    assert ask.get("/v2/health/ready").status == 200
    row = {"name": "going", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}
    eventually(lambda: ask.index()["going"] == [row], "the index says that it was unloaded")
    ask.infer("going", x("FP32", [1])).refused("Request for unknown model: 'going' is not found", status=404)


# Ports in use.


def test_every_port_that_is_taken_is_named_and_nothing_stays_behind(launch: Launch, repository: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as http, socket.create_server(("127.0.0.1", 0)) as metrics:
        ports = [taken.getsockname()[1] for taken in (http, metrics)]
        server = launch(repository, f"--http-port={ports[0]}", f"--metrics-port={ports[1]}", wait=False)
        assert server.wait(10) == 1
    for service, port in zip(("HTTPService", "Metrics Service"), ports, strict=True):
        assert f"{service} on 127.0.0.1:{port} (already in use)" in server.log_text


def test_a_second_server_on_the_same_ports_ends_and_the_first_goes_on(launch: Launch, repository: Path) -> None:
    write_identity(repository, "good")
    first = launch(repository)
    second = launch(repository, f"--http-port={first.port}", wait=False)
    assert second.wait(10) == 1
    assert str(first.port) in second.log_text
    assert Asker(first.port).infer("good", x("FP32", [1])).data() == [1.0]
    with socket.socket() as probe:  # the port that was free has been given back
        probe.bind(("127.0.0.1", second.metrics_port))


def test_port_0_takes_free_ports_and_says_which(launch: Launch, repository: Path) -> None:
    write_identity(repository, "good")
    server = launch(repository, "--http-port=0", "--grpc-port=0", "--metrics-port=0", wait=False)
    eventually(lambda: "model versions ready" in server.log_text, "started")
    ports = {
        words[0]: int(words[1].rstrip('"').rpartition(":")[2])
        for line in server.log_text.splitlines()
        if "Started " in line and (words := line.partition("Started ")[2].split(" at "))
    }
    assert ports.keys() == {"HTTPService", "GRPCInferenceService", "Metrics Service"}
    assert 0 not in ports.values()
    assert Asker(ports["HTTPService"]).infer("good", x("FP32", [1])).data() == [1.0]
    assert "nv_inference_count" in Asker(ports["Metrics Service"]).get("/metrics").body.decode()
