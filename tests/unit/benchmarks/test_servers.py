"""A server process is entered when it answers, stopped with its group, and explained when it dies."""

import os
import signal
import sys

import pytest

from benchmarks.client import closed_loop
from benchmarks.ports import free_port
from benchmarks.servers import Server, ServerDiedError

ECHO = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *arguments): pass
    def reply(self, status):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        print("asked", flush=True)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self): self.reply(200)
    def do_POST(self): self.reply(500 if self.path == "/broken" else 200)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


@pytest.fixture
def echo(tmp_path):
    port = free_port()
    with Server([sys.executable, "-c", ECHO, port], port, tmp_path / "log", ready_path="/ready") as server:
        yield server


def test_a_closed_loop_sends_exactly_what_it_was_told(echo, tmp_path):
    body = tmp_path / "body"
    body.write_bytes(b"x" * 100_000)
    loop = closed_loop(echo, "/", body, connections=3, requests=20)
    assert loop.per_second == pytest.approx(20 / loop.seconds)
    assert 0 < loop.p50_ms < loop.seconds * 1e3
    asked = echo.log.read_text().count("asked")
    assert asked == 21, "20 requests after one successful readiness probe"


def test_a_failed_request_fails_the_closed_loop(echo, tmp_path):
    body = tmp_path / "body"
    body.write_bytes(b"{}")
    with pytest.raises(RuntimeError, match="500"):
        closed_loop(echo, "/broken", body, connections=1, requests=1)


def test_leaving_stops_the_process(tmp_path):
    port = free_port()
    server = Server([sys.executable, "-c", ECHO, port], port, tmp_path / "log", ready_path="/ready")
    with server:
        pid = server.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_that_dies_is_quoted(tmp_path):
    command = [sys.executable, "-c", "import sys; print('no model repository'); sys.exit(3)"]
    server = Server(command, free_port(), tmp_path / "log")
    with pytest.raises(ServerDiedError, match=r"exited with 3[\s\S]*no model repository"), server:
        pass


def test_a_server_that_never_gets_ready_is_given_up(tmp_path):
    server = Server(
        [sys.executable, "-c", "import time; time.sleep(60)"], free_port(), tmp_path / "log", deadline_seconds=0.3
    )
    with pytest.raises(ServerDiedError, match=r"not ready after 0\.3 s"), server:
        pass


def test_a_server_that_dies_in_use_is_blamed_for_what_follows(tmp_path):
    port = free_port()
    server = Server([sys.executable, "-c", ECHO, port], port, tmp_path / "log", ready_path="/ready")

    def be_refused():
        with server:
            os.kill(server.pid, signal.SIGKILL)
            os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
            raise ConnectionRefusedError

    with pytest.raises(ServerDiedError, match="died with -9"):
        be_refused()
