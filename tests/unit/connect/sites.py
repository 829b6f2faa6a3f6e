"""What is served, made up, and small HTTP servers of others that answer what a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bident.connect.site import Address, Site, TensorModel, TextModel

NOBODY = "http://127.0.0.1:9"
SMOLLM2 = TextModel("smollm2:latest", frozenset({"completion"}), 8192)
MINILM = TextModel("minilm:latest", frozenset({"embedding"}), 512)


def tensor_model(name: str) -> TensorModel:
    return TensorModel(name, "1", {"name": name, "inputs": [], "outputs": []}, {"name": name})


def address(url: str, host: str = "") -> Address:
    return Address(url, url.replace("127.0.0.1", host) if host else url)


def site(
    *names: str,
    metrics: str = "http://127.0.0.1:8002",
    text: str | None = NOBODY,
    host: str = "",
    text_models: tuple[TextModel, ...] = (SMOLLM2, MINILM),
) -> Site:
    """A site with tensor models called ``names``; without any there is no tensor server."""
    return Site(
        tensor=address("http://127.0.0.1:8000", host) if names else None,
        metrics=address(metrics, host) if names else None,
        text=address(text, host) if text else None,
        models=tuple(tensor_model(name) for name in names),
        text_models=text_models if text else (),
    )


@contextmanager
def answering(answers: Mapping[str, Any]) -> Iterator[str]:
    """A server that answers each path with a text, with what becomes JSON, or with a status; its URL."""

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path, answers.get(self.path.partition("?")[0], 404))
            self.send_response(answer if isinstance(answer, int) else 200)
            body = answer if isinstance(answer, str) else json.dumps(answer)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.do_GET()

        def log_message(self, *args: Any) -> None:
            pass

    door = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    door.daemon_threads = True
    thread = threading.Thread(target=door.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{door.server_port}"
    finally:
        door.shutdown()
        door.server_close()
        thread.join()
