"""What both servers are told of Langfuse, and which hop of the way there fails."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator

import pytest

from bident.connect.langfuse import Langfuse
from bident.connect.neighbour import Hop, Wanted
from bident.connect.registry import neighbour
from bident.connect.site import Address, Site
from bident.errors import ServeError
from bident.observe.trace_settings import TraceStart
from bident.settings import parse_tensor_args, parse_text_args
from otlp_receiver import OtlpReceiver
from tests.unit.connect.sites import NOBODY, answering, site

KEYS = {"LANGFUSE_PUBLIC_KEY": "pk-lf-1", "LANGFUSE_SECRET_KEY": "sk-lf-1" + "~" * 60}
HEALTH = {"status": "OK", "version": "3.200.0"}
BASIC = "Basic " + base64.b64encode(":".join(KEYS.values()).encode()).decode()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANGFUSE_HOST", raising=False)
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def langfuse() -> Iterator[OtlpReceiver]:
    with OtlpReceiver(authorization=BASIC) as made:
        yield made


def sourced(script: str) -> dict[str, str]:
    """The environment that the file makes, as a shell has it."""
    done = subprocess.run(["sh", "-c", f"{script}\nenv"], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def script(here: Site, **options: str) -> str:
    (file,) = Langfuse().files(here, Wanted(options=options))
    assert file.path == "langfuse.sh"
    return file.text


def hops(here: Site, url: str) -> list[Hop]:
    return list(Langfuse().check(here, Wanted(options={"url": url})))


def test_it_is_among_the_neighbours() -> None:
    assert isinstance(neighbour("langfuse"), Langfuse)


def test_the_file_is_what_both_servers_read() -> None:
    text = script(site("iris"), url="http://h:3000/")
    assert not any(key in text for key in KEYS.values())
    made = sourced(text)

    tensor = TraceStart.parse(parse_tensor_args(["--model-repository=m"], made).trace_config)
    assert (tensor.mode, tensor.setting.level, tensor.setting.rate) == ("opentelemetry", {"TIMESTAMPS"}, 1)
    text_settings = parse_text_args([], made)
    for spans in (tensor.spans, TraceStart.parse(text_settings.trace_config).spans):
        assert spans is not None
        assert spans.url == "http://h:3000/api/public/otel/v1/traces"
    assert (text_settings.trace_text, text_settings.trace_usage) == (False, "auto")
    assert made["OTEL_EXPORTER_OTLP_HEADERS"] == (
        f"Authorization={BASIC.replace(' ', '%20')},x-langfuse-ingestion-version=4"
    )


def test_the_headers_are_what_the_exporter_sends(langfuse: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    from bident.observe.span_export import SpanExport
    from bident.wire.trace_context import TraceContext

    made = sourced(script(site("iris"), url=langfuse.host))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", made["OTEL_EXPORTER_OTLP_HEADERS"])
    spans = TraceStart.parse(parse_text_args([], made).trace_config).spans
    assert spans is not None
    export = SpanExport(spans, "s")
    export.put(TraceContext.first(), "s", 1, 2, attributes={})
    export.close(10)

    assert langfuse.named("s")
    assert langfuse.headers[0]["x-langfuse-ingestion-version"] == "4"


def test_choices_and_engines() -> None:
    whole = script(site("iris"), text="true", usage="never", rate="10")
    assert ";level=TIMESTAMPS;level=TENSORS;rate=10'" in whole
    assert "BIDENT_TEXT_TRACE_TEXT=true" in whole
    assert "BIDENT_TEXT_TRACE_USAGE=never" in whole
    assert "BIDENT_TRACE_CONFIG" not in script(site())
    assert "BIDENT_TEXT" not in script(site("iris", text=None))


@pytest.mark.parametrize(
    "option", ["url=h'h", "url=h;h", "url=ftp://h", "rate=x", "text=maybe", "usage=2", "url=http://h:x"]
)
def test_choices_that_there_are_not(option: str) -> None:
    name, _, value = option.partition("=")
    with pytest.raises(ServeError, match=value):
        script(site("iris"), **{name: value})


def test_a_missing_key_stops_the_file() -> None:
    text = f"unset LANGFUSE_SECRET_KEY\n{script(site('iris'))}"
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert "LANGFUSE_SECRET_KEY" in done.stderr


def test_a_way_that_works() -> None:
    settings = {"trace_mode": "opentelemetry", "trace_level": ["TIMESTAMPS"], "trace_rate": "1"}
    with answering({"/api/public/health": HEALTH, "/api/public/otel/v1/traces": {}}) as url:
        here = {"/v2/trace/setting": {**settings, "url": f"{url}/api/public/otel/v1/traces"}}
        with answering(here) as tensor:
            found = hops(Site(Address(tensor, tensor), None, None), url)

    assert [hop.works for hop in found] == [True, True, True], found
    assert found[1].seen.startswith("a span was taken; its trace is ")


def test_what_fails_is_named(monkeypatch: pytest.MonkeyPatch, langfuse: OtlpReceiver) -> None:
    (nobody,) = hops(site(), NOBODY)
    assert (nobody.works, nobody.name) == (False, "here -> Langfuse")
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk-lf-2")
    (_, wrong) = hops(site("iris"), langfuse.host)
    assert not wrong.works
    assert "401" in wrong.seen
    assert "LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY must be a pair" in wrong.cure
    monkeypatch.delenv("LANGFUSE_SECRET_KEY")
    (_, missing) = hops(site(), langfuse.host)
    assert missing.seen == "not in the environment: LANGFUSE_SECRET_KEY"


@pytest.mark.parametrize(
    ("answers", "seen"),
    [
        ({"/api/public/health": {"status": "OK"}}, "does not answer as Langfuse does"),
        ({"/api/public/health": "no JSON"}, "answered 200: no JSON"),
        ({"/api/public/health": HEALTH}, "answered 404"),
        ({"/api/public/health": HEALTH, "/api/public/otel/v1/traces": 500}, "answered 500"),
    ],
)
def test_others_than_langfuse(answers: dict[str, object], seen: str) -> None:
    with answering(answers) as url:
        last = hops(site(), url)[-1]

    assert not last.works
    assert seen in last.seen


@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        ({"trace_mode": "triton"}, "it exports no spans"),
        ({"trace_mode": "opentelemetry", "url": "http://c/v1/traces"}, "its spans go to http://c/v1/traces"),
        (500, "its trace settings are not told"),
    ],
)
def test_a_tensor_server_that_sends_nothing(settings: object, seen: str) -> None:
    api = {"/api/public/health": HEALTH, "/api/public/otel/v1/traces": {}}
    with answering(api) as url, answering({"/v2/trace/setting": settings}) as tensor:
        last = hops(Site(Address(tensor, tensor), None, None), url)[-1]

    assert (last.name, last.works) == ("tensor server -> Langfuse", False)
    assert seen in last.seen
    assert "bident restart" in last.cure
