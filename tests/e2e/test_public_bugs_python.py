"""What people report of Python models: errors without a trace, dead workers, wrong outputs, memory, text, numpy 2."""

from __future__ import annotations

import json
import os
import signal
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from asking import Answer, Asker, tensor
from model_folders import declared, write_model
from python_repository import script_config, source, write_python, write_script
from python_site import PythonSite, python_site
from serving import Launch, eventually

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, plugins: Path) -> Iterator[PythonSite]:
    with python_site(tmp_path_factory.mktemp("python"), plugins) as made:
        yield made


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def resident(pid: int) -> int:
    """Megabytes of memory that a process has in use."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) // 1024


# Exceptions: no text, no log, and a model that never comes back.


def test_an_exception_is_told_with_its_traceback_and_logged_with_model_and_id(site: PythonSite) -> None:
    before = len(site.server.log_text)
    answer = site.run("def deep():\n    raise ValueError('€')\ndeep()", id="r-7")
    answer.refused("Failed to process the request(s) for model 'one_0'", "ValueError: €", "deep", status=500)
    logged = eventually(lambda: site.server.log_text[before:], "a line in the log")
    assert "model 'one', request 'r-7'" in logged
    assert site.value("answer = 5") == 5
    assert site.server.log_text[before:].count("ValueError: €") == 1


def test_a_long_exception_arrives_and_a_monstrous_one_is_cut(site: PythonSite) -> None:
    message = site.run("raise ValueError('x' * 65536)").refused("ValueError", status=500)
    assert "x" * 60_000 in message
    assert len(site.run("raise ValueError('y' * 20_000_000)").refused("ValueError", status=500)) < 500_000
    assert site.value("answer = 5") == 5


@pytest.mark.parametrize("text", ["\\ud800", "\\x00", "<script>", 'quote " and \\\\'])
def test_an_exception_of_odd_text_is_json_all_the_same(site: PythonSite, text: str) -> None:
    site.run(f"raise ValueError('{text}')").refused("ValueError", status=500)


@pytest.mark.parametrize("code", ["sys.exit(3)", "raise KeyboardInterrupt", "raise GeneratorExit", "raise SystemExit"])
def test_what_ends_other_programs_ends_only_the_request(site: PythonSite, code: str) -> None:
    site.run(code).refused("one_0", status=500)
    assert site.value("answer = 5") == 5


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
        ("os._exit(3)", "3"),
        ("__import__('ctypes').string_at(0)", "SIGSEGV"),
        ("os.kill(os.getpid(), 15)", "SIGTERM"),
    ],
)
def test_a_worker_that_dies_costs_its_request_and_nothing_else(site: PythonSite, code: str, how: str) -> None:
    before = site.pid()
    message = site.run(code).refused("Stub process 'one_0' is not healthy", status=500)
    assert how in message
    assert site.value("answer = 1", "other") == 1
    assert site.pid() != before, "the next request has a new worker"
    assert site.is_ready("one")
    assert not is_alive(before)


# Between the death and the next worker.


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Path]:
    """A file that keeps the models of this test from being initialised, while it exists."""
    path = tmp_path / "hold"
    yield path
    path.unlink(missing_ok=True)


def waiting_for(hold: Path) -> str:
    return f"while os.path.exists({str(hold)!r}): time.sleep(0.002)"


def test_a_model_without_a_worker_is_not_ready_and_its_requests_wait(
    site: PythonSite, pool: ThreadPoolExecutor, hold: Path
) -> None:
    assert site.offer("slow", INITIALIZE=waiting_for(hold)).status == 200
    hold.touch()
    site.run("os._exit(1)", "slow").refused("Stub process", status=500)
    assert not site.is_ready("slow")
    assert site.ask.get("/v2/health/live").status == 200
    assert site.value("answer = 1", "other") == 1
    kept = pool.submit(site.value, "answer = 2", "slow")
    eventually(lambda: site.pending("slow") == 1, "the request waits")
    hold.unlink()
    assert kept.result() == 2
    assert site.is_ready("slow")
    assert site.ask.unload("slow").status == 200


def test_requests_do_not_wait_for_ever_for_a_worker(site: PythonSite, hold: Path) -> None:
    assert site.offer("stuck", INITIALIZE=waiting_for(hold)).status == 200
    hold.touch()
    site.run("os._exit(1)", "stuck").refused("Stub process", status=500)
    site.run("answer = 1", "stuck").refused("model 'stuck' is not ready", "'stuck_0' is starting", status=503)
    site.run("answer = 1", "stuck").refused("model 'stuck' is not ready", status=503)  # at once, this time
    assert site.failures("stuck", "REJECTED") == 2
    hold.unlink()
    site.wait_ready("stuck")
    assert site.value("answer = 3", "stuck") == 3
    assert site.ask.unload("stuck").status == 200


def test_a_slow_initialize_holds_up_nobody_else(site: PythonSite, pool: ThreadPoolExecutor, hold: Path) -> None:
    hold.touch()
    loading = pool.submit(site.offer, "late", INITIALIZE=waiting_for(hold))
    eventually(lambda: site.ask.index().get("late", [{}])[0].get("state") == "LOADING", "it is being loaded")
    assert not site.is_ready("late")
    assert site.ask.get("/v2/health/live").status == 200
    assert site.value("answer = 1") == 1
    assert site.offer("meanwhile").status == 200
    assert not loading.done()
    hold.unlink()
    assert loading.result().status == 200
    assert site.value("answer = 2", "late") == 2
    for name in ("late", "meanwhile"):
        assert site.ask.unload(name).status == 200


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("import no_such_module_at_all\n", ["No module named 'no_such_module_at_all'"]),
        ("def broken(:\n", ["SyntaxError"]),
        ("class Other:\n    pass\n", ["TritonPythonModel"]),
        ("import os\nos._exit(4)\n", ["Stub process", "4"]),
    ],
    ids=["import", "syntax", "no-class", "exit"],
)
def test_a_file_that_does_not_load_says_why(site: PythonSite, text: str, fragments: list[str]) -> None:
    write_model(site.repository, "broken", f'backend: "python"\n{script_config()}', model_py=text)
    message = site.ask.load("broken").refused("load failed for model 'broken'", *fragments)
    assert len(message) < 20_000
    assert site.ask.index()["broken"][0]["state"] == "UNAVAILABLE"
    assert site.value("answer = 5") == 5


def test_no_process_outlives_its_model(site: PythonSite) -> None:
    assert site.offer("leaves").status == 200
    pid = site.pid("leaves")
    assert site.ask.unload("leaves").status == 200
    eventually(lambda: not is_alive(pid), "the worker has ended")


# Outputs that are not what the config says (the rest is in test_python_fidelity).


def batched(site: PythonSite, code: str, rows: int = 3) -> Answer:
    return site.ask.infer("batched", tensor("CODE", "BYTES", [rows, 1], [code] * rows))


def test_one_value_a_row_needs_no_second_dimension(site: PythonSite) -> None:
    assert site.offer("batched", "max_batch_size: 4").status == 200
    one_per_row = "response = pb_utils.InferenceResponse([tensor('ANSWER', [b'a', b'b', b'c'], np.object_)])"
    assert batched(site, one_per_row).output("ANSWER") == {
        "name": "ANSWER", "datatype": "BYTES", "shape": [3, 1], "data": ["a", "b", "c"]
    }  # fmt: skip
    wrong = "response = pb_utils.InferenceResponse([tensor('F', [[1, 2], [3, 4]])])"
    batched(site, wrong).refused("output 'F' of model 'batched' has shape [2, 2]", "[3, 2]", status=500)
    doubled = "response = pb_utils.InferenceResponse([pb_utils.Tensor('F', np.zeros((3, 2)))])"
    assert batched(site, doubled).output("F") == {
        "name": "F", "datatype": "FP32", "shape": [3, 2], "data": [0.0] * 6
    }  # fmt: skip
    assert site.ask.unload("batched").status == 200


@pytest.mark.parametrize("given", ["", "tensor('ANSWERS', [b'x'], np.object_)", "tensor('F', [1, 2])"])
def test_an_output_that_was_asked_for_is_never_just_missing(site: PythonSite, given: str) -> None:
    code = f"response = pb_utils.InferenceResponse([{given}])"
    given = given.split("'")[1] if given else ""
    found = f"it produced '{given}'" if given else "it produced nothing"
    site.run(code, outputs=[{"name": "ANSWER"}]).refused("model 'one' produced no output 'ANSWER'", found, status=500)
    assert site.run(code).status == 200


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_outputs_of_free_size_may_have_any(site: PythonSite, rows: int) -> None:
    code = f"response = pb_utils.InferenceResponse([tensor('V', [1.5] * {rows})])"
    assert site.run(code).output("V")["shape"] == [rows]


# Memory.


def test_requests_that_raise_after_a_call_leave_nothing(site: PythonSite) -> None:
    code = "read(ask('other', 'answer = \"x\" * 200_000').exec()); raise ValueError('as always')"
    pids = [site.server.pid, site.pid(), site.pid("other")]

    def many(count: int) -> None:
        for _ in range(count):
            site.run(code).refused("as always", status=500)

    many(100)
    before = [resident(pid) for pid in pids]
    many(200)
    after = [resident(pid) for pid in pids]
    assert all(now <= then * 1.1 + 16 for then, now in zip(before, after, strict=True)), (before, after)


def test_large_outputs_are_given_back(site: PythonSite) -> None:
    code = "response = pb_utils.InferenceResponse([pb_utils.Tensor('V', np.ones(6_000_000, np.float32))])"
    wanted = [{"name": "V", "parameters": {"binary_data": True}}]
    pids = [site.server.pid, site.pid()]

    def many(count: int) -> None:
        for _ in range(count):
            assert len(site.run(code, outputs=wanted).binary) == 24_000_000

    many(5)
    before = [resident(pid) for pid in pids]
    many(15)
    after = [resident(pid) for pid in pids]
    assert all(now <= then * 1.1 + 32 for then, now in zip(before, after, strict=True)), (before, after)


def test_loading_and_unloading_leaves_nothing_open(site: PythonSite) -> None:
    write_script(site.repository, "again")
    opened = Path(f"/proc/{site.server.pid}/fd")

    def cycle() -> int:
        assert site.ask.load("again").status == 200
        assert site.value("answer = 1", "again") == 1
        assert site.ask.unload("again").status == 200
        eventually(lambda: "again" not in site.page, "it is gone")
        return len(list(opened.iterdir()))

    first = [cycle() for _ in range(2)][-1]
    assert eventually(lambda: min(cycle() for _ in range(2)) <= first, "no descriptor is left open")


@pytest.mark.parametrize("end", ["worker", "server", "stop"])
def test_nothing_stays_in_shared_memory(launch: Launch, tmp_path: Path, end: str) -> None:
    before = set(SHARED_MEMORY.iterdir())
    write_script(tmp_path / "repository", "m")
    server = launch(tmp_path / "repository")
    ask = Asker(server.port)
    large = "answer = len('x' * 3_000_000)"

    def run(code: str) -> Answer:
        return ask.infer("m", tensor("CODE", "BYTES", [1], [code]))

    assert run(large + " # " + "y" * 2_000_000).status == 200
    worker = int(run("answer = os.getpid()").data("ANSWER")[0])
    if end == "worker":
        os.kill(worker, signal.SIGKILL)
        eventually(lambda: run(large).status == 200, "another worker answers")
        server.stop()
    elif end == "server":
        server.signal(signal.SIGKILL)
        server.wait()
    else:
        server.stop()
    eventually(lambda: not is_alive(worker), "the worker has ended")
    left = {path for path in set(SHARED_MEMORY.iterdir()) - before if "triton_python_backend" not in path.name}
    assert not {path for path in left if "bident" in path.name}, left


# Text.


def test_a_model_prints_and_opens_any_text_in_an_ascii_locale(site: PythonSite) -> None:
    before = len(site.server.log_text)
    code = (
        "print('\u0444\u20ac\U0001f600'); path = os.path.join(pb_utils.get_model_dir(), '\u0444.txt'); "
        "open(path, 'w').write('\u20ac'); "
        "answer = [open(path).read(), os.path.basename(path), sys.getfilesystemencoding()]"
    )
    assert site.value(code) == ["\u20ac", "\u0444.txt", "utf-8"]
    eventually(lambda: "\u0444\u20ac\U0001f600" in site.server.log_text[before:], "what it printed is in the log")


def echoed(site: PythonSite, *elements: bytes, as_json: bool = False) -> Answer:
    """Strings that went through the model as they are."""
    if not (site.repository / "echo").exists():
        config = declared("input", "X", "BYTES") + declared("output", "OUT", "BYTES")
        text = source("types").replace('given.name().replace("IN", "OUT")', '"OUT"')
        write_model(site.repository, "echo", f'backend: "python"\n{config}', model_py=text)
        assert site.ask.load("echo").status == 200
    raw = b"".join(struct.pack("<I", len(element)) + element for element in elements)
    given = tensor("X", "BYTES", [len(elements)], binary_data_size=len(raw))
    wanted = [{"name": "OUT", "parameters": {"binary_data": not as_json}}]
    return site.ask.infer_binary("echo", [given], raw, outputs=wanted)


@pytest.mark.parametrize(
    "elements",
    [
        (b"", b""),
        (b"",),
        ("\u0444\u20ac\U0001f600".encode(), b""),
        (b"\xff\xfe", b"a\0b"),
        (b"AAEC",),
        (b"x" * 70_000,),
    ],
    ids=["two-empty", "one-empty", "not-ascii", "not-utf-8", "base64", "long"],
)
def test_strings_reach_a_model_and_come_back_byte_for_byte(site: PythonSite, elements: tuple[bytes, ...]) -> None:
    raw = b"".join(struct.pack("<I", len(element)) + element for element in elements)
    assert echoed(site, *elements).binary == raw


def test_bytes_that_are_no_text_are_not_made_json(site: PythonSite) -> None:
    echoed(site, b"\xff\xfe", as_json=True).refused("output 'OUT'", "not UTF-8", "binary_data")


def test_strings_that_are_none_never_reach_the_model(site: PythonSite) -> None:
    echoed(site)
    for body, fragments in (
        (r'{"inputs":[{"name":"X","shape":[1],"datatype":"BYTES","data":["\ud800"]}]}', ()),
        ('{"inputs":[{"name":"X","shape":[1],"datatype":"BYTES","data":[]}]}', ("'X'",)),
        ('{"inputs":[{"name":"X","shape":[1],"datatype":"BYTES","data":[{"b64":"AAEC"}]}]}', ("'X'", "base64")),
    ):
        site.ask.infer_text("echo", body).refused(*fragments)


# numpy 2.


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("'S', np.array(['a', 'é'], dtype=np.dtypes.StringDType())", ["a", "é"]),
        ("'S', np.array(['a', 'é'])", ["a", "é"]),
        ("'S', np.array([b'a', b'bc'])", ["a", "bc"]),
        ("'F', np.array([1, 2], dtype=np.float32)[::-1]", [2.0, 1.0]),
        ("'V', np.array([], dtype=np.float32)", []),
        ("'I', np.array([True, False]).view(np.int8)", [1, 0]),
    ],
)
def test_what_numpy_2_makes_is_taken(site: PythonSite, output: str, expected: list[object]) -> None:
    answer = site.run(f"response = pb_utils.InferenceResponse([pb_utils.Tensor({output})])")
    assert answer.data(output[1]) == expected


def test_a_numpy_scalar_is_no_tensor(site: PythonSite) -> None:
    said = site.value("answer = caught(lambda: pb_utils.Tensor('F', np.float32(1)))")
    assert said is not None
    assert json.dumps(said)
    write_python(site.repository, "unused", "types")  # a folder without a config is no reason to fail either
    assert site.value("answer = 5") == 5
