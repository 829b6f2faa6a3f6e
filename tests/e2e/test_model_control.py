"""Who decides what is loaded (none, poll, explicit), which versions serve, and reloads under traffic."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import pytest
from asking import Asker, x
from bug_models import Shared
from model_folders import onnx_mark, parameters, write_identity, write_model, x_to_y
from serving import Gate, Launch, eventually
from wire_http import Wire, infer_body, request

EXPLICIT = "--model-control-mode=explicit"
ROW = x("FP32", [10, 20], [1, 2])


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "repository"
    made.mkdir()
    return made


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


def write_mark(repository: Path, mark: float, *, version: int = 1, policy: str = "", name: str = "marked") -> None:
    """A model whose version answers X + ``mark`` in both outputs; written as a trainer would: at once."""
    config = f'backend: "onnxruntime"\n{policy}' if policy else None
    write_model(repository, name, config, version, new_onnx=onnx_mark(mark))
    folder = repository / name / str(version)
    (folder / "new.onnx").replace(folder / "model.onnx")


def mark_of(ask: Asker, version: str = "", name: str = "marked") -> float:
    """Which file answered; both outputs of both elements must agree."""
    answer = ask.infer(name, ROW, version=version)
    marks = {answer.data("first")[0] - 10, answer.data("first")[1] - 20}
    marks |= {answer.data("second")[0] - 10, answer.data("second")[1] - 20}
    (mark,) = marks
    return mark


# none: what is there at the start, and nothing else.


def test_none_loads_everything_at_the_start_and_never_looks_again(launch: Launch, repository: Path) -> None:
    write_mark(repository, 1)
    ask = Asker(launch(repository).port)
    write_mark(repository, 2)
    write_identity(repository, "later")
    assert mark_of(ask) == 1
    assert ask.index() == {
        "later": [{"name": "later"}],
        "marked": [{"name": "marked", "version": "1", "state": "READY"}],
    }
    ask.infer("later", x("FP32", [1])).refused("Request for unknown model: 'later' is not found", status=404)
    ask.load("later").refused("not allowed", status=503)


# poll: what changes on disk changes what serves.


def test_polling_follows_the_folder_through_everything_that_can_happen(launch: Launch, repository: Path) -> None:
    write_identity(repository, "other")
    server = launch(repository, "--model-control-mode=poll", "--repository-poll-secs=1")
    ask = Asker(server.port)

    write_mark(repository, 1)
    eventually(lambda: ask.get("/v2/models/marked/ready").status == 200, "a new model is served")
    assert mark_of(ask) == 1

    write_mark(repository, 2)
    eventually(lambda: mark_of(ask) == 2, "a changed model is served")

    (repository / "marked" / "1" / "model.onnx").write_bytes(b"half a model")
    eventually(lambda: "failed to load 'marked'" in server.log_text, "the broken file is seen")
    assert mark_of(ask) == 2, "what served goes on"
    assert ask.get("/v2/models/marked/ready").status == 200
    failures = server.log_text.count("failed to load 'marked'")

    write_mark(repository, 3)
    eventually(lambda: mark_of(ask) == 3, "the mended model is served")
    assert server.log_text.count("failed to load 'marked'") == failures, "one failure is reported once"

    (repository / "marked").rename(repository.parent / "away")
    eventually(lambda: ask.get("/v2/models/marked/ready").status == 400, "a removed model is gone")
    eventually(lambda: list(ask.index()) == ["other"], "and so is its name")
    ask.infer("marked", ROW).refused("Request for unknown model: 'marked' is not found")

    (repository.parent / "away").rename(repository / "marked")
    eventually(lambda: ask.get("/v2/models/marked/ready").status == 200, "it is back")
    assert mark_of(ask) == 3


def test_polling_sees_new_versions_and_new_configs(launch: Launch, repository: Path) -> None:
    write_mark(repository, 1)
    ask = Asker(launch(repository, "--model-control-mode=poll", "--repository-poll-secs=1").port)
    assert mark_of(ask) == 1
    write_mark(repository, 2, version=2)
    eventually(lambda: mark_of(ask) == 2, "the newer version serves")
    ask.infer("marked", ROW, version="1").refused("version 1", status=503)
    write_mark(repository, 2, version=2, policy="version_policy { all { } }")
    eventually(lambda: ask.get("/v2/models/marked").json["versions"] == ["1", "2"], "both versions serve")
    assert (mark_of(ask, "1"), mark_of(ask, "2"), mark_of(ask)) == (1, 2, 2)


# explicit: what is asked for.


def test_explicit_loads_what_it_is_told_to_and_lists_the_rest_by_name(launch: Launch, repository: Path) -> None:
    for name in ("one", "two", "three"):
        write_identity(repository, name)
    ask = Asker(launch(repository, EXPLICIT, "--load-model=one", "--load-model=three").port)
    rows = {name: rows[0].get("state") for name, rows in ask.index().items()}
    assert rows == {"one": "READY", "three": "READY", "two": None}
    ready = ask.post("/v2/repository/index", {"ready": True}).json
    assert [row["name"] for row in ready] == ["one", "three"]
    ask.infer("two", x("FP32", [1])).refused("'two' is not found", status=404)
    assert ask.load("two").status == 200
    assert ask.infer("two", x("FP32", [1])).data() == [1.0]
    assert ask.unload("one").status == 200
    ask.infer("one", x("FP32", [1])).refused("'one' is not found", status=404)
    assert ask.load("one").status == 200


def test_explicit_without_names_loads_nothing(launch: Launch, repository: Path) -> None:
    write_identity(repository, "one")
    ask = Asker(launch(repository, EXPLICIT).port)
    assert ask.index() == {"one": [{"name": "one"}]}
    assert ask.get("/v2/health/ready").status == 200


def test_a_model_that_is_not_there_is_refused_with_the_names_that_are(launch: Launch, repository: Path) -> None:
    write_identity(repository, "churn")
    ask = Asker(launch(repository, EXPLICIT).port)
    ask.load("chrun").refused("failed to load 'chrun', failed to poll from model repository", "'churn'", status=500)
    assert "chrun" not in ask.index()
    assert ask.unload("chrun").status == 200, "as Triton does"


@pytest.mark.parametrize("name", ["..", "%2e%2e", "a%2Fb", "..%5C..", "%20", "a%00b"])
def test_a_name_that_is_a_path_is_refused(shared: Shared, ask: Asker, name: str) -> None:
    with Wire(shared.server.port) as wire:
        for verb in ("load", "unload"):
            wire.send(request(f"/v2/repository/models/{name}/{verb}", length=0))
            wire.read().refused()


def test_a_named_repository_is_not_supported(launch: Launch, repository: Path) -> None:
    write_identity(repository, "one")
    ask = Asker(launch(repository, EXPLICIT).port)
    for verb in ("load", "unload"):
        ask.post(f"/v2/repository/mine/models/one/{verb}").refused("'repository_name'", status=501)
    assert ask.post("/v2/repository/mine/index").json == [{"name": "one"}]


# Versions.


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", ["7"]),
        ("version_policy { latest { num_versions: 2 } }", ["4", "7"]),
        ("version_policy { all { } }", ["1", "4", "7"]),
        ("version_policy { specific { versions: [ 1, 7 ] } }", ["1", "7"]),
        ("version_policy { specific { versions: [ 1, 99 ] } }", ["1"]),
    ],
    ids=["default", "latest-2", "all", "specific", "specific-and-absent"],
)
def test_the_version_policy_decides_which_versions_serve(
    shared: Shared, ask: Asker, request: pytest.FixtureRequest, policy: str, served: list[str]
) -> None:
    name = f"versions_{request.node.callspec.id}"
    for version in (1, 4, 7):
        write_mark(shared.repository, version, version=version, policy=policy, name=name)
    (shared.repository / name / "notes").mkdir()
    (shared.repository / name / "09").mkdir()
    assert ask.load(name).status == 200
    assert ask.get(f"/v2/models/{name}").json["versions"] == served
    assert [row["version"] for row in ask.index()[name] if row["state"] == "READY"] == served
    assert [mark_of(ask, version, name) for version in served] == [float(version) for version in served]
    assert mark_of(ask, name=name) == float(served[-1]), "no version asked for is the highest"
    for version in {"1", "4", "7", "9", "99"} - set(served):
        assert ask.infer(name, ROW, version=version).status in (404, 503)


def test_a_policy_that_selects_nothing_is_refused(shared: Shared, ask: Asker) -> None:
    write_mark(shared.repository, 1, policy="version_policy { specific { versions: [ 5 ] } }", name="selects_none")
    ask.load("selects_none").refused(
        "at least one version must be available under the version policy of model 'selects_none'", "'1'"
    )


def test_a_new_version_replaces_the_old_one_without_a_gap(launch: Launch, repository: Path) -> None:
    write_mark(repository, 1)
    ask = Asker(launch(repository, EXPLICIT, "--load-model=*").port)
    with Traffic(ask.port) as traffic:
        traffic.wait_for_answers(10)
        write_mark(repository, 2, version=2)
        assert ask.load("marked").status == 200
        traffic.promise(2)
        traffic.wait_for_answers(10)
    assert traffic.marks == {1.0, 2.0}
    assert ask.get("/v2/models/marked").json["versions"] == ["2"]


# Reloads under traffic.


@dataclass
class Traffic:
    """Threads that ask the model ``marked`` without pause, each on a connection of its own.

    Every answer must be wholly of one file, and of none older than what had been promised when it was asked for.
    """

    port: int
    threads: int = 4
    marks: set[float] = field(default_factory=set)
    slowest: float = 0.0
    _promised: float = 0.0
    _answers: list[int] = field(default_factory=list)
    _faults: list[BaseException] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _running: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Traffic:
        self._answers = [0] * self.threads
        self._running = [threading.Thread(target=self._ask, args=(number,)) for number in range(self.threads)]
        for thread in self._running:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stop.set()
        for thread in self._running:
            thread.join()
        if self._faults:
            raise AssertionError(f"{len(self._faults)} threads met a wrong answer") from self._faults[0]

    def promise(self, mark: float) -> None:
        """From now on nothing older than ``mark`` may be answered."""
        self._promised = mark

    def wait_for_answers(self, count: int) -> None:
        """Until every thread has had ``count`` more answers."""
        targets = [done + count for done in self._answers]
        eventually(
            lambda: self._faults or all(done >= target for done, target in zip(self._answers, targets, strict=True)),
            f"{count} more answers for each of {self.threads} threads",
        )

    def _ask(self, number: int) -> None:
        ask = Asker(self.port)
        try:
            while not self._stop.is_set():
                promised, started = self._promised, monotonic()
                mark = mark_of(ask)
                self.slowest = max(self.slowest, monotonic() - started)
                assert mark >= promised, f"{mark} after {promised} had been promised"
                self.marks.add(mark)
                self._answers[number] += 1
        except BaseException as error:
            self._faults.append(error)
        finally:
            ask.close()


def test_reloads_under_traffic_lose_and_mix_nothing(launch: Launch, repository: Path) -> None:
    write_mark(repository, 1)
    server = launch(repository, EXPLICIT, "--load-model=*")
    ask = Asker(server.port)
    with Traffic(server.port) as traffic:
        for mark in range(2, 12):
            traffic.wait_for_answers(5)
            write_mark(repository, mark)
            assert ask.load("marked").status == 200
            traffic.promise(mark)
        traffic.wait_for_answers(5)
    assert traffic.marks == {float(mark) for mark in range(1, 12)}
    assert traffic.slowest < 1.0
    stats = ask.get("/v2/models/marked/stats").json["model_stats"][0]["inference_stats"]
    assert stats["fail"]["count"] == 0
    assert "Traceback" not in server.log_text


def test_a_failing_reload_under_traffic_changes_nothing(launch: Launch, repository: Path) -> None:
    write_mark(repository, 1)
    server = launch(repository, EXPLICIT, "--load-model=*")
    ask = Asker(server.port)
    with Traffic(server.port) as traffic:
        (repository / "marked" / "1" / "model.onnx").write_bytes(b"half a model")
        ask.load("marked").refused("load failed for model 'marked'", "model.onnx")
        (repository / "marked" / "config.pbtxt").write_text("max_batch_size: many")
        ask.load("marked").refused("load failed for model 'marked'", "config.pbtxt")
        traffic.wait_for_answers(10)
    assert traffic.marks == {1.0}
    assert ask.get("/v2/models/marked/ready").status == 200
    assert ask.index()["marked"][0]["state"] == "READY"


def test_one_bad_version_of_two_keeps_both_old_ones(launch: Launch, repository: Path) -> None:
    everything = "version_policy { all { } }"
    write_mark(repository, 1, version=1, policy=everything)
    write_mark(repository, 2, version=2, policy=everything)
    ask = Asker(launch(repository, EXPLICIT, "--load-model=*").port)
    write_mark(repository, 11, version=1, policy=everything)
    (repository / "marked" / "2" / "model.onnx").write_bytes(b"half a model")
    ask.load("marked").refused("load failed for model 'marked'")
    assert (mark_of(ask, "1"), mark_of(ask, "2")) == (1, 2)


def write_gated(repository: Path, *gates: str) -> None:
    held = "".join(gates) + parameters(LANE="thread")
    write_model(repository, "held", f'backend: "gated"\n{x_to_y()}{held}')


def test_while_a_reload_takes_its_time_nobody_waits_for_it(
    launch: Launch, repository: Path, gate: Gate, pool: ThreadPoolExecutor
) -> None:
    write_gated(repository)
    ask = Asker(launch(repository, EXPLICIT, "--load-model=*").port)
    write_gated(repository, gate.parameters(at_load=True))
    reload = pool.submit(ask.load, "held")
    gate.wait_for_batches(1)
    for number in range(100):
        assert ask.infer("held", x("FP32", [number])).data() == [float(number)]
    assert ask.get("/v2/models/held/ready").status == 200
    assert not reload.done()
    gate.open()
    assert reload.result().status == 200


def test_what_was_asked_of_the_old_one_is_answered_by_the_old_one(
    launch: Launch, repository: Path, gate: Gate, pool: ThreadPoolExecutor
) -> None:
    write_gated(repository, gate.parameters())
    server = launch(repository, EXPLICIT, "--load-model=*")
    ask = Asker(server.port)
    old = [pool.submit(ask.infer, "held", x("FP32", [number])) for number in range(3)]
    gate.wait_for_batches(1)
    waiting = 'nv_inference_pending_request_count{model="held",version="1"} 2\n'
    metrics = Asker(server.metrics_port)
    eventually(lambda: waiting in metrics.get("/metrics").body.decode(), "the other two wait behind it")
    write_gated(repository)
    assert ask.load("held").status == 200, "a reload does not wait for what is in flight"
    assert ask.infer("held", x("FP32", [9])).data() == [9.0]
    assert not any(answer.done() for answer in old)
    gate.open()
    assert sorted(answer.result().data()[0] for answer in old) == [0.0, 1.0, 2.0]
    assert sorted(gate.batches) == [[0.0], [1.0], [2.0]], "by the old instance, not by the new one"


def test_an_unload_answers_what_it_has_accepted_and_takes_nothing_new(
    launch: Launch, repository: Path, gate: Gate
) -> None:
    write_gated(repository, gate.parameters())
    server = launch(repository, EXPLICIT, "--load-model=*")
    ask = Asker(server.port)
    with Wire(server.port) as running:
        running.send(request("/v2/models/held/infer", infer_body([1])))
        gate.wait_for_batches(1)
        assert ask.unload("held").status == 200
        assert ask.index()["held"] == [{"name": "held", "version": "1", "state": "UNLOADING"}]
        assert ask.infer("held", x("FP32", [2])).status in (404, 503)
        gate.open()
        assert running.read().data() == [1.0]
    row = {"name": "held", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}
    eventually(lambda: ask.index()["held"] == [row], "unloaded")


def test_two_loads_of_one_model_at_once_both_succeed(
    launch: Launch, repository: Path, gate: Gate, pool: ThreadPoolExecutor
) -> None:
    write_gated(repository, gate.parameters(at_load=True))
    ask = Asker(launch(repository, EXPLICIT).port)
    loads = [pool.submit(ask.load, "held") for _ in range(4)]
    gate.wait_for_batches(1)
    gate.open()
    assert [load.result().status for load in loads] == [200] * 4
    assert ask.infer("held", x("FP32", [1])).data() == [1.0]
