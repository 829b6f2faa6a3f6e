"""The echo client brings every shape there and back, and notices when other bytes come back."""

import sys

import pytest

from benchmarks.echo_client import echo
from benchmarks.ports import free_port
from benchmarks.servers import Server

IDENTITY = """
import http.server, json, sys
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *arguments): pass
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        split = int(self.headers["Inference-Header-Content-Length"])
        tensor = json.loads(body[:split])["inputs"][0]
        data = bytearray(body[split:])
        assert len(data) == tensor["parameters"]["binary_data_size"]
        sys.stdout.write(f"{tensor['shape']}\\n")  # at once: print would write the line's end by itself
        sys.stdout.flush()
        if "damaging" in self.path: data[len(data) // 2] ^= 1
        if "stale" in self.path: data = data[4:] + data[:4]
        self.send_response(400 if "failing" in self.path else 200)
        self.send_header("Content-Length", str(2 + len(data)))
        self.end_headers()
        self.wfile.write(b"{}" + data)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


@pytest.fixture
def server(tmp_path):
    port = free_port()
    with Server([sys.executable, "-c", IDENTITY, port], port, tmp_path / "log", ready_path=None) as server:
        yield server


def test_every_shape_is_sent_once(server):
    shapes = [[1], [3, 2], [250_000], [1, 1]]
    loop = echo(server, "identity", shapes, connections=2)
    assert sorted(server.log.read_text().splitlines()) == sorted(map(str, shapes))
    assert loop.per_second == pytest.approx(4 / loop.seconds)
    assert 0 < loop.p50_ms <= loop.seconds * 1e3


@pytest.mark.parametrize("model", ["damaging", "stale"])
@pytest.mark.parametrize("shape", [[2], [500_000]])
def test_other_bytes_are_noticed(server, model, shape):
    with pytest.raises(RuntimeError, match="other bytes came back"):
        echo(server, model, [shape], connections=1)


def test_a_failed_request_fails_the_client(server):
    with pytest.raises(RuntimeError, match="400"):
        echo(server, "failing", [[1]] * 10, connections=2)
