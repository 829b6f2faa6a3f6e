"""What Dify brings along when it runs an app, played: its sandbox for code, and a web server with a picture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venvs" / "dify" / "bin" / "python"
_ENGINE = Path(__file__).with_name("dify_engine.py")
_KEY = "dify-sandbox"


class _Sandbox(BaseHTTPRequestHandler):
    """Dify's sandbox runs programs that come as text, each in a process of its own; GET gives the ``picture``."""

    picture = b""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/sandbox/run"
        assert self.headers["X-Api-Key"] == _KEY
        assert asked["language"] == "python3"
        # -I -S: the standard library and nothing else, as in the sandbox.
        command = [sys.executable, "-I", "-S", "-"]
        done = subprocess.run(command, input=asked["code"], capture_output=True, text=True, timeout=15, check=False)
        data = {"stdout": done.stdout, "error": done.stderr}
        self._answer("application/json", json.dumps({"code": 0, "message": "success", "data": data}).encode())

    def do_GET(self) -> None:
        self._answer("image/png", self.picture)

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def sandbox(picture: bytes = b"") -> Iterator[str]:
    """The address of a sandbox that runs until the end of the block."""
    handler = type("Sandbox", (_Sandbox,), {"picture": picture})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def run(app: Path, sandbox_url: str, inputs: dict[str, Any], prefix: tuple[str, ...] = (), **environment: str) -> Any:
    """What Dify's engine makes of ``app``: ``{"outputs": ...}`` or ``{"error": ...}``.

    ``prefix`` goes before the command, as ``ip netns exec NAME`` does.
    """
    command = [*prefix, PYTHON, _ENGINE, app, sandbox_url]
    done = subprocess.run(
        command,
        input=json.dumps(inputs),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": os.environ["PATH"], **environment},  # no proxy but the one that a test names
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


if __name__ == "__main__":  # in a network namespace, which no thread of a test can enter
    with sandbox() as address:
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        sys.stdin.read()
