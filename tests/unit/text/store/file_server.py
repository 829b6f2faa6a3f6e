"""A web server for tests: files with ranges and faults on demand, and a registry that takes what is pushed."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "let-me-in"


class Files:
    """What the server has, by path, and what it has been asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and Range header."""
        self.cut_after: dict[str, int] = {}
        """Bytes after which an answer about a path breaks off, once."""
        self.gate: threading.Event | None = None
        """What the second half of every file waits for."""
        self.waiting = threading.Event()
        """An answer has come to the gate."""
        self.ranges = True
        self.wrong_length = 0
        self.demands_token = False
        self.login = ""
        """The Authorization header that the registry, or who gives tokens, demands."""
        self.url = ""

    def asked(self, path: str) -> list[str]:
        """The Range headers of the downloads of ``path``."""
        return [header for method, asked, header in self.requests if method == "GET" and asked == path]


@contextmanager
def serving() -> Iterator[Files]:
    files = Files()
    handler = type("Handler", (_Handler,), {"files": files})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    files.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield files
    finally:
        if files.gate:
            files.gate.set()
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files: Files

    def log_message(self, *arguments: Any) -> None: ...

    def do_GET(self) -> None:
        path = self._noted()
        if path == "/token":
            allowed = self.headers.get("Authorization", "") == self.files.login
            return self._answer(200 if allowed else 401, json.dumps({"token": TOKEN}).encode())
        if self._refused():
            return None
        if path not in self.files.files:
            return self._answer(404, b'{"errors":[]}')
        return self._send_file(path, self.files.files[path])

    def do_HEAD(self) -> None:
        path = self._noted()
        if not self._refused():
            self._answer(200 if path in self.files.files else 404, b"")

    def do_POST(self) -> None:
        path = self._noted()
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self._refused():
            self._answer(202, b"", {"Location": f"{path}some-upload?state=1"})

    def do_PUT(self) -> None:
        path = self._noted()
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self._refused():
            return
        digest = parse_qs(urlsplit(self.path).query).get("digest", [""])[0]
        if digest:
            if digest != f"sha256:{hashlib.sha256(content).hexdigest()}":
                return self._answer(400, b"")
            path = re.sub("/uploads/.*", f"/{digest}", path)
        self.files.files[path] = content
        self._answer(201, b"")

    def _noted(self) -> str:
        path = urlsplit(self.path).path
        self.files.requests.append((self.command, path, self.headers.get("Range", "")))
        return path

    def _refused(self) -> bool:
        wanted = f"Bearer {TOKEN}" if self.files.demands_token else self.files.login
        if self.headers.get("Authorization", "") == wanted:
            return False
        if not self.files.demands_token:
            self._answer(401, b"", {"WWW-Authenticate": 'Basic realm="tests"'})
            return True
        challenge = f'Bearer realm="{self.files.url}/token",service="tests",scope="repository:all"'
        self._answer(401, b"", {"WWW-Authenticate": challenge})
        return True

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_file(self, path: str, content: bytes) -> None:
        files, start = self.files, 0
        etag = files.etags.get(path, "")
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and files.ranges and self.headers.get("If-Range", etag) == etag:
            start = int(asked[1])
        if start and start >= len(content):
            return self._answer(416, b"")
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if etag:
            self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(content) - start + files.wrong_length))
        self.end_headers()
        self._send_body(path, content[start:])

    def _send_body(self, path: str, body: bytes) -> None:
        cut = self.files.cut_after.pop(path, None)
        half = len(body) // 2
        write: Callable[[bytes], Any] = self.wfile.write
        try:
            if cut is not None:
                write(body[:cut])
            elif self.files.gate:
                write(body[:half])
                self.files.waiting.set()
                self.files.gate.wait(30)
                write(body[half:])
            else:
                write(body)
        except OSError:
            pass
        if cut is not None or self.files.wrong_length:
            self.close_connection = True
