"""Starting the text server: who answers by default, standing by for a real Ollama, settings that make no sense."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bident.settings import parse_text_args
from bident.settings.addresses import Upstream
from bident.text import server
from bident.text.doors.passing import ollama_version
from bident.text.server import TextServer, run_text

DEADLINE = 5.0


@asynccontextmanager
async def answering(said: bytes, status: str = "200 OK") -> AsyncIterator[str]:
    """A server that answers every request with ``said``; its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status}\r\ncontent-length: {len(said)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + said)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        await listening.wait_closed()


@pytest.mark.parametrize(
    ("said", "version"),
    [
        (b'{"version":"0.14.0"}', "0.14.0"),
        (b'{"version":"0.14.0","bident":"0.1.0"}', None),
        (b'{"version":1}', None),
        (b"[]", None),
        (b"<html>", None),
        (b"", None),
        (b"\xff", None),
    ],
)
def test_a_real_ollama_is_told_from_others(said: bytes, version: str | None) -> None:
    async def scene() -> str | None:
        async with answering(said) as url:
            return await ollama_version(url)

    assert asyncio.run(scene()) == version
    assert asyncio.run(ollama_version("http://127.0.0.1:9")) is None


def default_of(*flags: str) -> Upstream:
    return asyncio.run(TextServer(parse_text_args([*flags], {}), None)._default_upstream())


def test_the_engine_inside_answers_where_there_is_no_ollama(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_OLLAMA", "http://127.0.0.1:9")
    assert default_of() == Upstream("none")
    assert default_of("--upstream=none") == Upstream("none")
    assert default_of("--upstream=openai:http://h/v1") == Upstream("openai", "http://h/v1")


def test_a_real_ollama_is_used_on_another_port(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> Upstream:
        async with answering(b'{"version":"0.14.0"}') as url:
            monkeypatch.setattr(server, "_OLLAMA", url)
            return await TextServer(parse_text_args(["--port=23499"], {}), None)._default_upstream()

    caplog.set_level("INFO", "bident.text")
    assert asyncio.run(scene()).kind == "ollama"
    assert "Ollama 0.14.0 answers at" in caplog.text


def test_on_the_same_port_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_STANDBY_SECONDS", 0.01)

    async def scene() -> None:
        waiting = TextServer(parse_text_args([], {}), None)
        async with answering(json.dumps({"version": "1"}).encode()) as url:
            monkeypatch.setattr(server, "_OLLAMA", url)
            task = asyncio.ensure_future(waiting._default_upstream())
            done, _ = await asyncio.wait({task}, timeout=0.1)
            assert not done
        assert await asyncio.wait_for(task, DEADLINE) == Upstream("none")

    asyncio.run(scene())


def test_a_signal_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> int:
        waiting = TextServer(parse_text_args([], {}), None)
        async with answering(b'{"version":"1"}') as url:
            monkeypatch.setattr(server, "_OLLAMA", url)
            task = asyncio.ensure_future(waiting.run())
            await asyncio.sleep(0)
            waiting._signal(15)
            return await asyncio.wait_for(task, DEADLINE)

    assert asyncio.run(scene()) == 0


@pytest.mark.parametrize("flag", ["--keep-alive=soon", "--load-timeout=x"])
def test_durations_that_are_none_are_named(
    flag: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "_configure_log", lambda _: None)
    assert run_text(parse_text_args([flag], {})) == 1
    assert flag in caplog.text


def test_libraries_and_files_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "theirs"))
    (tmp_path / "library" / "manifests").mkdir(parents=True)
    (tmp_path / "files").mkdir()
    flags = [f"--library={tmp_path / name}" for name in ("library", "files")]
    own, foreign, files = server._libraries(parse_text_args([*flags, f"--models={tmp_path / 'own'}"], {}))
    assert (own, foreign) == (tmp_path / "own", [tmp_path / "library", tmp_path / "theirs"])
    assert files == [tmp_path / "files"]
