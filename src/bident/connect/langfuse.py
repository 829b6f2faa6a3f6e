"""Langfuse: what was asked, how long it took and what it used, from both servers, by OpenTelemetry."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping
from secrets import token_hex
from time import time_ns
from typing import Any, ClassVar

from bident.client import Client
from bident.connect.elsewhere import Elsewhere, said
from bident.connect.neighbour import File, Hop, Neighbour, Wanted
from bident.connect.site import Address, Site
from bident.errors import ServeError, invalid_arg

_HOST = "http://127.0.0.1:3000"
_HEALTH = "/api/public/health"
_TRACES = "/api/public/otel/v1/traces"
_INGESTION = "x-langfuse-ingestion-version"
_NEWEST_INGESTION = "4"
"""With it spans are there at once; without it they may take minutes."""
_KEYS = ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")
_FILE = "langfuse.sh"
_REFUSED = (401, 403)
_FAILED = 400
_UNKNOWN = 404


class _Api(Elsewhere):
    protocol: ClassVar[str] = "Langfuse's API"
    example: ClassVar[str] = _HOST
    flag: ClassVar[str] = "--set url=http://HOST:PORT"


class Langfuse(Neighbour):
    """Langfuse at the address of the option ``url``; its keys are in the environment and in no file."""

    name: ClassVar[str] = "langfuse"
    summary: ClassVar[str] = "Langfuse: a trace of each request, with models, tokens and times; text only if asked for"
    options: ClassVar[Mapping[str, str]] = {
        "url": f"where Langfuse is; without it that of LANGFUSE_HOST, or {_HOST}",
        "rate": "one request to the tensor server in so many; 1 without it",
        "text": "true: prompts, answers and the beginnings of tensors are sent too; false without it",
        "usage": "who counts tokens: auto (without it), always or never; never where all comes through LiteLLM",
    }

    def files(self, site: Site, wanted: Wanted) -> list[File]:
        return [File(_FILE, _script(site, wanted), "environment of both servers; source it where they are started")]

    def steps(self, site: Site, wanted: Wanted) -> list[str]:
        url = _url(wanted)
        return [
            "pip install 'bident[otel]'",
            f"export {_KEYS[0]}=pk-lf-... {_KEYS[1]}=sk-lf-...    # of one project: its settings, API keys",
            f". ./{_FILE} && bident restart    # or bident up, or bident serve",
            f"bident connect langfuse --check --set url={url}",
            "With LiteLLM in front: bident connect litellm --set langfuse=true writes its side; it finds Langfuse by "
            f"LANGFUSE_OTEL_HOST={url}",
        ]

    def check(self, site: Site, wanted: Wanted) -> Iterator[Hop]:
        url = _url(wanted)
        langfuse = _Api(url)
        health = _health(langfuse)
        yield health
        if not health.works:
            return
        taken = _takes_a_span(langfuse)
        yield taken
        if taken.works and site.tensor is not None:
            yield _is_sent_spans(site.tensor, url)


def _script(site: Site, wanted: Wanted) -> str:
    """Lines for a POSIX shell. The keys are put in when it is sourced, so that the file holds no secret."""
    with_text = wanted.one_of("text", "false", "true") == "true"
    mode = f"mode=opentelemetry;opentelemetry,url={_url(wanted)}{_TRACES}"
    lines = [
        "# Spans of both servers to Langfuse. Made by 'bident connect langfuse'; the keys come from the environment.",
        f': "${{{_KEYS[0]}:?}}" "${{{_KEYS[1]}:?}}"',
        f'export OTEL_EXPORTER_OTLP_HEADERS="Authorization=Basic%20$(printf %s "${_KEYS[0]}:${_KEYS[1]}" '
        f"| base64 | tr -d '\\n'),{_INGESTION}={_NEWEST_INGESTION}\"",
    ]
    if site.tensor is not None:
        level = "level=TIMESTAMPS;level=TENSORS" if with_text else "level=TIMESTAMPS"
        lines.append(f"export BIDENT_TRACE_CONFIG='{mode};{level};rate={_rate(wanted)}'")
    if site.text is not None:
        lines.append(f"export BIDENT_TEXT_TRACE_CONFIG='{mode}'")
        lines.append(f"export BIDENT_TEXT_TRACE_TEXT={str(with_text).lower()}")
        lines.append(f"export BIDENT_TEXT_TRACE_USAGE={wanted.one_of('usage', 'auto', 'always', 'never')}")
    return "\n".join(lines) + "\n"


def _url(wanted: Wanted) -> str:
    """Where Langfuse is. Raises INVALID_ARG for what is no address, or could not stand in quotes."""
    url = wanted.option("url", os.environ.get("LANGFUSE_HOST") or _HOST).rstrip("/")
    if any(sign in "';" or sign.isspace() for sign in url):
        raise invalid_arg(f"--set url={url}: it is an address such as {_HOST}")
    return _Api(url).url


def _rate(wanted: Wanted) -> int:
    text = wanted.option("rate", "1")
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise invalid_arg(f"--set rate={text}: it is a whole number; 0 is for requests that are part of a trace alone")
    return int(text)


def _health(langfuse: _Api) -> Hop:
    name = "here -> Langfuse"
    try:
        health = langfuse.get_json(_HEALTH)
    except ServeError as error:
        return Hop(name, False, error.message, f"start Langfuse, or say where it is: {_Api.flag}")
    version = health.get("version") if isinstance(health, dict) else None
    if not version:
        return Hop(name, False, f"{langfuse.url}{_HEALTH} does not answer as Langfuse does", _Api.flag)
    return Hop(name, True, f"Langfuse {version} at {langfuse.url}")


def _takes_a_span(langfuse: _Api) -> Hop:
    """Whether the keys are good: one span, with an id to look for, is sent as the servers send theirs."""
    name = "the keys -> a project"
    missing = [key for key in _KEYS if not os.environ.get(key)]
    if missing:
        return Hop(name, False, f"not in the environment: {', '.join(missing)}", f"export {missing[0]}=...")
    trace_id = token_hex(16)
    keys = ":".join(os.environ[key] for key in _KEYS).encode()
    headers = {
        "Authorization": f"Basic {base64.b64encode(keys).decode()}",
        "Content-Type": "application/json",
        _INGESTION: _NEWEST_INGESTION,
    }
    try:
        reply = langfuse.exchange("POST", _TRACES, json.dumps(_span(trace_id)).encode(), headers)
    except ServeError as error:
        return Hop(name, False, error.message, "see Langfuse's log")
    if reply.status in _REFUSED:
        cure = f"{_KEYS[0]} and {_KEYS[1]} must be a pair of one project of {langfuse.url}: its settings, API keys"
        return Hop(name, False, f"Langfuse refuses them ({reply.status})", cure)
    if reply.status >= _FAILED:
        cure = "Langfuse takes OpenTelemetry from 3.22.0 on" if reply.status == _UNKNOWN else "see Langfuse's log"
        return Hop(name, False, f"{_TRACES} {said(reply)}", cure)
    return Hop(name, True, f"a span was taken; its trace is {trace_id}")


def _span(trace_id: str) -> dict[str, Any]:
    """One span as JSON, as OpenTelemetry's protocol has it."""
    now = str(time_ns())
    span = {
        "traceId": trace_id,
        "spanId": token_hex(8),
        "name": "bident connect langfuse --check",
        "kind": 1,
        "startTimeUnixNano": now,
        "endTimeUnixNano": now,
        "attributes": [{"key": "langfuse.observation.type", "value": {"stringValue": "event"}}],
    }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "bident-connect"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "bident"}, "spans": [span]}]}]}


def _is_sent_spans(tensor: Address, url: str) -> Hop:
    """Whether the tensor server was started with what the file says; the text server does not tell."""
    name = "tensor server -> Langfuse"
    cure = f". ./{_FILE} && bident restart"
    try:
        setting = Client(tensor.here, credentials=tensor.credentials).call("GET", "/v2/trace/setting")
    except ServeError as error:
        return Hop(name, False, f"its trace settings are not told: {error.message}", cure)
    if setting.get("trace_mode") != "opentelemetry":
        return Hop(name, False, "it exports no spans", cure)
    if setting.get("url") != url + _TRACES:
        return Hop(name, False, f"its spans go to {setting.get('url')}", cure)
    if setting.get("trace_level") == ["OFF"]:
        return Hop(name, False, "its trace level is OFF", cure)
    return Hop(name, True, f"one request in {setting.get('trace_rate')} leaves a trace, and each that is part of one")
