"""What people report of models that ask other models, of their metrics, of lost clients, and of streams."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from asking import Answer, tensor
from model_folders import declared, parameters
from python_repository import one_instance, write_python
from python_site import PythonSite, python_site
from serving import eventually
from wire_http import Wire, request

END = "send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, plugins: Path) -> Iterator[PythonSite]:
    with python_site(tmp_path_factory.mktemp("calls"), plugins) as made:
        yield made


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(24) as made:
        yield made


def asking(model: str, code: str = "answer = 'asked'") -> str:
    """Code that answers what ``model`` says to ``code``."""
    return f"answer = read(ask({model!r}, {code!r}).exec())"


# Calls that never came back.


def test_a_model_that_waits_for_itself_is_told_so(site: PythonSite) -> None:
    said = site.value(asking("one"))
    assert said.startswith("error: ")
    assert "model 'one' would wait for itself" in said
    assert "instance_group" in said
    assert site.value("answer = 1") == 1


def test_a_circle_over_another_model_is_found(site: PythonSite) -> None:
    said = site.value(asking("other", asking("one")))
    assert "model 'one' would wait for itself" in said
    assert (site.value("answer = 1"), site.value("answer = 2", "other")) == (1, 2)


def test_two_instances_may_ask_each_other(site: PythonSite) -> None:
    assert site.value(asking("two"), "two") == "asked"
    said = site.value(asking("two", asking("two")), "two")
    assert "model 'two' would wait for itself" in said


def test_many_that_ask_themselves_all_get_an_answer(site: PythonSite, pool: ThreadPoolExecutor) -> None:
    answers = list(pool.map(lambda _: site.value(asking("two"), "two"), range(24)))
    assert all(said == "asked" or "would wait for itself" in said for said in answers)
    assert site.value("answer = 1", "two") == 1


@pytest.mark.parametrize("how", ["exec()", "exec(decoupled=True)", "async_exec()"])
def test_a_call_in_initialize_is_refused_and_does_not_hang(site: PythonSite, how: str) -> None:
    call = f"ask('other').{how}"
    if how.startswith("async"):
        call = f"asyncio.run(asyncio.wait_for({call}, 60))"
    message = site.offer("early", INITIALIZE=call).refused("load failed for model 'early'")
    assert "initialize" in message
    assert "early" not in [model["name"] for model in site.ask.post("/v2/repository/index", {"ready": True}).json]


def test_a_call_in_finalize_is_refused_and_does_not_hang(site: PythonSite) -> None:
    before = len(site.server.log_text)
    assert site.offer("parting", FINALIZE="print('finalising'); ask('other').exec()").status == 200
    assert site.ask.unload("parting").status == 200
    eventually(lambda: "finalising" in site.server.log_text[before:], "finalize has run")
    eventually(lambda: 'model="parting"' not in site.page, "it is gone")


def test_fifty_calls_at_once_are_all_answered(site: PythonSite) -> None:
    code = (
        "async def all_of():\n"
        "    calls = [ask('two', f'answer = {n}').async_exec() for n in range(50)]\n"
        "    return await asyncio.gather(*calls)\n"
        "answer = [read(one) for one in asyncio.run(all_of())]"
    )
    assert site.value(code) == list(range(50))


def test_asynchronous_calls_overlap(site: PythonSite, tmp_path: Path) -> None:
    """Each waits for the other one to have begun."""
    both = (
        f"open(os.path.join({str(tmp_path)!r}, NAME), 'w').close()\n"
        f"end = time.monotonic() + 15\n"
        f"while len(os.listdir({str(tmp_path)!r})) < 2 and time.monotonic() < end: time.sleep(0.005)\n"
        f"answer = len(os.listdir({str(tmp_path)!r}))"
    )
    code = (
        f"both = {both!r}\n"
        "async def all_of():\n"
        "    calls = [ask('two', both.replace('NAME', repr(name))).async_exec() for name in 'ab']\n"
        "    return await asyncio.gather(*calls)\n"
        "answer = [read(one) for one in asyncio.run(all_of())]"
    )
    assert site.value(code) == [2, 2]


def test_the_death_of_who_is_asked_is_an_answer(site: PythonSite) -> None:
    said = site.value(asking("other", "os.kill(os.getpid(), 9)"))
    assert said.startswith("error: ")
    assert "Stub process 'other_0' is not healthy" in said
    assert site.value("answer = 2", "other") == 2


def test_the_death_of_who_asks_ends_what_it_asked_for(site: PythonSite, tmp_path: Path) -> None:
    begun, seen = tmp_path / "begun", tmp_path / "seen"
    code = (
        f"asked = {until_cancelled(begun, seen)!r}\n"
        "threading.Thread(target=lambda: ask('other', asked).exec(), daemon=True).start()\n"
        f"while not os.path.exists({str(begun)!r}): time.sleep(0.002)\nos._exit(1)"
    )
    site.run(code).refused("Stub process 'one_0' is not healthy", status=500)
    eventually(lambda: seen.exists() and seen.read_text(), "the one that was asked knows")
    assert seen.read_text() == "True"
    assert site.value("answer = 2", "other") == 2


# Metrics.


def test_figures_of_a_python_model_add_up(site: PythonSite, tmp_path: Path) -> None:
    assert site.offer("figures").status == 200
    labels = '{model="figures",version="1"}'
    names = ("nv_inference_request_success", "nv_inference_count", "nv_inference_exec_count")
    assert [site.sample(name + labels) for name in names] == [0, 0, 0]
    for _ in range(3):
        site.value("time.sleep(0.01)", "figures")
    site.run("raise ValueError(1)", "figures").refused("ValueError", status=500)
    site.run("response = pb_utils.InferenceResponse(error=pb_utils.TritonError('no'))", "figures").refused(
        "no", status=500
    )
    site.run("os._exit(1)", "figures").refused("Stub", status=500)
    # Runs that failed have run: the real server counts them too.
    assert [site.sample(name + labels) for name in names] == [3, 3, 6]
    assert site.failures("figures", "BACKEND") == 3
    assert site.sample("nv_inference_compute_infer_duration_us" + labels) >= 30_000
    assert site.ask.unload("figures").status == 200
    eventually(lambda: 'model="figures"' not in site.page, "its figures are gone")


def test_metrics_of_a_models_own_are_on_the_page(site: PythonSite) -> None:
    made = (
        "family = pb_utils.MetricFamily(name='own_requests', description='Asked \"so\"', "
        "kind=pb_utils.MetricFamily.COUNTER)\n"
        "self.family = family\nself.metric = family.Metric(labels={'model': 'own', 'note': 'a\"b\\\\c'})"
    )
    assert site.offer("own", INITIALIZE=made).status == 200
    series = r'own_requests{model="own",note="a\"b\\c"}'
    assert site.sample(series) == 0
    assert site.value("self.metric.increment(2.5); answer = self.metric.value()", "own") == 2.5
    assert site.sample(series) == 2.5
    assert site.page.count("# TYPE own_requests counter") == 1
    families = re.findall(r"^# TYPE (\S+)", site.page, re.MULTILINE)
    assert len(families) == len(set(families))
    assert site.ask.unload("own").status == 200
    eventually(lambda: "own_requests" not in site.page, "they go with the model")


def test_a_calls_figures_are_those_of_who_is_asked(site: PythonSite) -> None:
    before = site.sample('nv_inference_count{model="other",version="1"}')
    assert site.value(asking("other")) == "asked"
    assert site.sample('nv_inference_count{model="other",version="1"}') == before + 1


# Requests of unequal shapes.


class Gathered:
    """A model that notes which requests ran together, and waits while ``hold`` exists."""

    def __init__(self, site: PythonSite, folder: Path, name: str, more: str = "") -> None:
        self.site, self.name = site, name
        self.hold, self.journal = folder / "hold", folder / "journal"
        config = (
            declared("input", "X", more=more)
            + declared("output", "Y")
            + f"max_batch_size: 8\n{one_instance()}\n"
            + "dynamic_batching { max_queue_delay_microseconds: 200000 }\n"
            + parameters(HOLD=str(self.hold), JOURNAL=str(self.journal))
        )
        write_python(site.repository, name, "gathered", config)

    def groups(self) -> list[list[int]]:
        """For each execution the widths of its requests."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [[len(rows[0]) for rows in json.loads(line)] for line in lines]

    def ask(self, pool: ThreadPoolExecutor, widths: list[int]) -> list[list[float]]:
        """What is answered to requests of these widths that come while the model is busy, in this order."""
        self.hold.touch()
        infer = self.site.ask.infer
        first = pool.submit(infer, self.name, tensor("X", "FP32", [1, 1], [9]))
        eventually(self.groups, "the model is busy")
        futures = []
        for number, width in enumerate(widths):
            futures.append(pool.submit(infer, self.name, tensor("X", "FP32", [1, width], [float(number)] * width)))
            eventually(lambda: self.site.pending(self.name) == len(futures), "it waits")
        self.hold.unlink()
        assert first.result().data() == [9.0]
        return [future.result().data() for future in futures]


def test_requests_of_unequal_widths_keep_their_rows_and_none_starves(
    site: PythonSite, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    model = Gathered(site, tmp_path, "widths")
    assert site.ask.load("widths").status == 200
    widths = [3, 3, 5, 5, 3]
    assert model.ask(pool, widths) == [[float(number)] * width for number, width in enumerate(widths)]
    assert model.groups() == [[1], [3, 3], [5, 5], [3]]
    assert site.ask.unload("widths").status == 200


def test_ragged_batches_are_honoured_or_refused_at_load(
    site: PythonSite, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    model = Gathered(site, tmp_path, "ragged_widths", "allow_ragged_batch: true")
    answer = site.ask.load("ragged_widths")
    if answer.status != 200:
        answer.refused("ragged")
        return
    widths = [3, 3, 5, 5, 3]
    assert model.ask(pool, widths) == [[float(number)] * width for number, width in enumerate(widths)]
    assert model.groups() == [[1], widths]
    assert site.ask.unload("ragged_widths").status == 200


# Clients that give up.


def body_of(code: str) -> bytes:
    return json.dumps({"inputs": [tensor("CODE", "BYTES", [1], [code])]}).encode()


def until_cancelled(begun: Path, seen: Path) -> str:
    """Code that runs until its client has gone, and notes that."""
    return (
        f"open({str(begun)!r}, 'w').close()\nend = time.monotonic() + 15\n"
        "while not request.is_cancelled() and time.monotonic() < end: time.sleep(0.005)\n"
        f"open({str(seen)!r}, 'w').write(str(request.is_cancelled()))"
    )


def test_a_model_learns_that_its_client_has_gone(site: PythonSite, tmp_path: Path) -> None:
    begun, seen = tmp_path / "begun", tmp_path / "seen"
    with Wire(site.server.port) as leaving:
        leaving.send(request("/v2/models/one/infer", body_of(until_cancelled(begun, seen))))
        eventually(begun.exists, "the model is at work")
    eventually(lambda: seen.exists() and seen.read_text(), "the model has ended")
    assert seen.read_text() == "True"
    assert site.value("answer = request.is_cancelled()") is False


def test_queued_requests_of_those_who_left_never_run(
    site: PythonSite, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    hold, begun, ran = (tmp_path / name for name in ("hold", "begun", "ran"))
    hold.touch()
    before = site.failures("one", "CANCELED")
    code = (
        f"open({str(begun)!r}, 'w').close()\nend = time.monotonic() + 60\n"
        f"while os.path.exists({str(hold)!r}) and time.monotonic() < end: time.sleep(0.002)\nanswer = 'busy'"
    )
    busy = pool.submit(site.value, code)
    eventually(begun.exists, "the model is at work")
    wires = [Wire(site.server.port) for _ in range(20)]
    for wire in wires:
        wire.send(request("/v2/models/one/infer", body_of(f"open({str(ran)!r}, 'a').write('x')")))
    eventually(lambda: site.pending("one") == 20, "20 requests wait")
    for wire in wires:
        wire.socket.close()
    eventually(lambda: site.pending("one") == 0, "the requests of those who left are gone", seconds=5)
    staying = pool.submit(site.value, "answer = 'stays'")
    eventually(lambda: site.pending("one") == 1, "the client who stays waits")
    hold.unlink()
    assert (busy.result(), staying.result()) == ("busy", "stays")
    assert not ran.exists()
    assert site.failures("one", "CANCELED") == before + 20


# Streams.


def sending(*values: object, then: str = END) -> str:
    """Code of a decoupled model that sends ``values`` and then does ``then``."""
    sent = "".join(f"sender.send(said({value!r}))\n" for value in values)
    return f"sender = request.get_response_sender()\n{sent}" + (f"sender.{then}" if then == END else then)


def generate(site: PythonSite, code: str, route: str = "generate", model: str = "streams") -> Answer:
    return site.ask.post(f"/v2/models/{model}/{route}", {"CODE": code})


def events(text: str) -> list[dict[str, object]]:
    """The JSON of each event of a stream, which must be nothing but events."""
    parts = text.split("\n\n")
    assert parts[-1] == "", text
    assert all(part.startswith("data: ") and "\n" not in part for part in parts[:-1]), text
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-1]]


def test_a_decoupled_model_is_refused_over_infer_with_the_way_out(site: PythonSite) -> None:
    site.run(sending(1), "streams").refused("decoupled transaction policy", "generate_stream", status=501)


def test_generate_takes_exactly_one_response(site: PythonSite) -> None:
    one = generate(site, sending(1))
    assert (one.status, one.json["ANSWER"]) == (200, "1")
    for code in (sending(), sending(1, 2, 3)):
        generate(site, code).refused("generate expects model to produce exactly 1 response", status=500)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_generate_stream_sends_an_event_for_each_response(site: PythonSite, count: int) -> None:
    answer = generate(site, sending(*range(count)), "generate_stream")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [event["ANSWER"] for event in events(answer.body.decode())] == [str(number) for number in range(count)]


def test_what_is_raised_after_two_responses_is_the_last_event(site: PythonSite) -> None:
    answer = generate(site, sending(1, 2, then="raise ValueError('in the middle')"), "generate_stream")
    *good, last = events(answer.body.decode())
    assert [event["ANSWER"] for event in good] == ["1", "2"]
    assert list(last) == ["error"]
    assert "in the middle" in str(last["error"])
    assert generate(site, sending(5)).json["ANSWER"] == "5"


def test_a_worker_that_dies_in_the_middle_ends_its_stream_with_an_error(site: PythonSite) -> None:
    answer = generate(site, sending(1, then="time.sleep(0.1); os.kill(os.getpid(), 9)"), "generate_stream")
    *good, last = events(answer.body.decode())
    assert [event["ANSWER"] for event in good] == ["1"]
    assert "Stub process 'streams_0' is not healthy" in str(last["error"])
    assert generate(site, sending(5)).json["ANSWER"] == "5"


@pytest.mark.parametrize("route", ["infer", "generate", "generate_stream"])
def test_leaving_ends_the_work_on_any_route(site: PythonSite, tmp_path: Path, route: str) -> None:
    begun, seen = tmp_path / "begun", tmp_path / "seen"
    model = "one" if route == "infer" else "streams"
    code = until_cancelled(begun, seen) + ("" if route == "infer" else f"\nrequest.get_response_sender().{END}")
    body = body_of(code) if route == "infer" else json.dumps({"CODE": code}).encode()
    with Wire(site.server.port) as leaving:
        leaving.send(request(f"/v2/models/{model}/{route}", body))
        eventually(begun.exists, "the model is at work")
    eventually(lambda: seen.exists() and seen.read_text(), "the model has ended")
    assert seen.read_text() == "True"


def test_an_ordinary_model_streams_its_one_answer(site: PythonSite) -> None:
    answer = generate(site, "answer = 7", "generate_stream", "one")
    assert [event["ANSWER"] for event in events(answer.body.decode())] == ["7"]
    failed = generate(site, "raise ValueError('no')", "generate_stream", "one")
    assert "ValueError: no" in str(events(failed.body.decode())[-1]["error"])
