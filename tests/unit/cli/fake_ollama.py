"""A small text server in a thread: Ollama's API as far as the commands use it, and a record of what they sent."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

END = {
    "done": True,
    "done_reason": "stop",
    "total_duration": 2_500_000_000,
    "load_duration": 500_000,
    "prompt_eval_count": 10,
    "prompt_eval_duration": 100_000_000,
    "eval_count": 20,
    "eval_duration": 200_000_000,
}


@dataclass
class FakeOllama:
    """``pieces`` are the messages of the next answers; ``statuses`` what long work says."""

    models: dict[str, list[str]] = field(default_factory=lambda: {"smollm2:latest": ["completion"]})
    faults: dict[str, str] = field(default_factory=dict)
    """Models that are listed and cannot be used, and why."""
    remote: dict[str, str] = field(default_factory=dict)
    """Models of other servers, and where those are."""
    pieces: list[dict[str, Any]] = field(default_factory=lambda: [{"content": "Hello"}, {"content": " you"}])
    end: dict[str, Any] = field(default_factory=dict)
    statuses: list[dict[str, Any]] = field(default_factory=lambda: [{"status": "success"}])
    loaded: list[dict[str, Any]] = field(default_factory=list)
    refusal: tuple[int, str] | None = None
    asked: list[tuple[str, Any]] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    url: str = ""

    def bodies(self, path: str) -> list[Any]:
        """What was sent to ``path``."""
        return [body for asked, body in self.asked if asked == path]

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, str, bytes]:
        if path.startswith("/api/blobs/"):
            return self._blob(method, path.removeprefix("/api/blobs/"), body)
        sent = json.loads(body) if body else None
        self.asked.append((path, sent))
        if self.refusal and path in ("/api/chat", "/api/pull"):
            return self.refusal[0], "application/json", json.dumps({"error": self.refusal[1]}).encode()
        plain = {
            "/api/version": {"version": "0.14.0"},
            "/api/tags": {"models": [self._entry(name) for name in (*self.models, *self.faults, *self.remote)]},
            "/api/ps": {"models": self.loaded},
            "/api/embed": {"embeddings": [[0.5, -1.5]]},
            "/api/generate": {"done": True},
            "/api/copy": {},
            "/api/delete": {},
        }
        if path in plain:
            return 200, "application/json", json.dumps(plain[path]).encode()
        if path == "/api/show":
            return self._show(sent["model"])
        lines = self._chat() if path == "/api/chat" else self.statuses
        if path == "/api/chat" and not sent["stream"]:
            content = "".join(piece.get("content", "") for piece in self.pieces)
            return 200, "application/json", json.dumps({**lines[-1], "message": {"content": content}}).encode()
        return 200, "application/x-ndjson", "".join(f"{json.dumps(line)}\n" for line in lines).encode()

    def _chat(self) -> list[dict[str, Any]]:
        pieces = [piece if "error" in piece else {"message": piece, "done": False} for piece in self.pieces]
        return [*pieces, {"message": {"content": ""}, **END, **self.end}]

    def _entry(self, name: str) -> dict[str, Any]:
        if name in self.remote:
            return {"name": name, "size": 0, "modified_at": "0001-01-01T00:00:00Z", "remote_host": self.remote[name]}
        details = {"parameter_size": "134.52M", "quantization_level": "Q4_1"}
        moment = "2026-11-30T12:00:00.123456789Z"
        entry = {"name": name, "size": 98_000_000, "modified_at": moment, "details": details}
        return {**entry, "fault": self.faults[name]} if name in self.faults else entry

    def _show(self, name: str) -> tuple[int, str, bytes]:
        if name in self.remote:
            card = {"remote_host": self.remote[name], "capabilities": ["completion"]}
            return 200, "application/json", json.dumps(card).encode()
        known = (name if ":" in name else f"{name}:latest").lower()
        if known not in self.models:
            return 404, "application/json", json.dumps({"error": f"model '{name}' not found"}).encode()
        card = {
            "capabilities": self.models[known],
            "details": {"parameter_size": "134.52M", "quantization_level": "Q4_1"},
            "model_info": {"general.architecture": "llama", "llama.context_length": 8192},
            "modelfile": "FROM smollm2\n",
            "system": "Be brief.",
        }
        return 200, "application/json", json.dumps(card).encode()

    def _blob(self, method: str, digest: str, body: bytes) -> tuple[int, str, bytes]:
        if method == "HEAD":
            return (200 if digest in self.blobs else 404), "", b""
        assert digest == f"sha256:{hashlib.sha256(body).hexdigest()}"
        self.blobs[digest] = body
        return 201, "", b""


@contextmanager
def fake_ollama() -> Iterator[FakeOllama]:
    fake = FakeOllama()

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, kind, answer = fake.answer(self.command, self.path, body)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer)

        do_GET = do_POST = do_DELETE = do_HEAD = reply  # noqa: N815 - the names that http.server looks for

        def log_message(self, *args: Any) -> None:
            pass

    door = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    door.daemon_threads = True
    fake.url = f"http://127.0.0.1:{door.server_port}"
    thread = threading.Thread(target=door.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield fake
    finally:
        door.shutdown()
        door.server_close()
        thread.join()
