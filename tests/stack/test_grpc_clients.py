"""The gRPC door with clients in other languages: grpc-js, nghttp2's h2load, curl."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.doors.grpc.grpc_line import prefixed
from tests.unit.doors.grpc.grpc_sockets import ListeningServer, listening

_GRPC_JS = "@grpc/grpc-js@1"
_GRPC = "content-type: application/grpc"


@pytest.fixture
def server() -> Iterator[ListeningServer]:
    with listening() as server:
        yield server


@pytest.fixture(scope="session")
def grpc_js(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which node finds grpc-js."""
    folder = tmp_path_factory.mktemp("grpc_js")
    (folder / "package.json").write_text("{}")
    subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--silent", _GRPC_JS], cwd=folder, check=True, timeout=110
    )
    (folder / "client.js").write_text((Path(__file__).parent / "grpc_js_client.js").read_text())
    return folder


@pytest.mark.parametrize("compression", [0, 1, 2], ids=["identity", "deflate", "gzip"])
def test_grpc_js(server: ListeningServer, grpc_js: Path, compression: int) -> None:
    command = ["node", "client.js", str(server.port), str(compression)]
    done = subprocess.run(command, cwd=grpc_js, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    came = json.loads(done.stdout)
    assert all(came["sizes"].values())
    assert came["many"]
    assert came["stream"] == {"code": 0, "count": 3000, "bytes": 30_000}
    assert came["large"] == {"code": 0, "count": 20, "bytes": 20_000_000}
    assert came["missing"]["code"] == 12
    assert came["late"]["code"] == 4
    assert came["cancelled"]["code"] == 1
    assert came["after"] == "still here"


@pytest.mark.parametrize(("clients", "streams"), [(1, 1), (8, 4), (50, 100)])
def test_h2load(server: ListeningServer, tmp_path: Path, clients: int, streams: int) -> None:
    message = tmp_path / "message"
    message.write_bytes(prefixed(b"x" * 100))
    url = f"http://127.0.0.1:{server.port}/test.Echo/Unary"
    command = ["h2load", "-n", "20000", "-c", str(clients), "-m", str(streams), "-d", str(message), "-H", _GRPC, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert re.search(r"20000 succeeded, 0 failed, 0 errored, 0 timeout", done.stdout), done.stdout
    assert len(server.service.got) == 20_000


def test_curl_with_prior_knowledge(server: ListeningServer, tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_bytes(prefixed(b"from curl"))
    command = ["curl", "-sS", "--http2-prior-knowledge", "--data-binary", f"@{message}"]
    url = f"http://127.0.0.1:{server.port}/test.Echo/Unary"
    answer = subprocess.run([*command, "-H", _GRPC, url], capture_output=True, check=True, timeout=20)
    assert answer.stdout == prefixed(b"from curl")


_POSTS = 40
"""Whether curl reads an answer that comes while it sends depends on the moment: one try shows little."""


@pytest.mark.parametrize("size", [2, 300_000])
def test_curl_that_does_not_speak_grpc(server: ListeningServer, tmp_path: Path, size: int) -> None:
    url = f"http://127.0.0.1:{server.port}/test.Echo/Unary"
    command = ["curl", "-sS", "-w", "%{http_code}"]
    body = tmp_path / "body"
    body.write_bytes(b"x" * size)
    post = [*command, "--http2-prior-knowledge", "--data-binary", f"@{body}", url]
    for _ in range(_POSTS):
        http_2 = subprocess.run(post, capture_output=True, check=True, timeout=20)
        assert http_2.stdout.endswith(b"415")
        assert b"application/grpc" in http_2.stdout
    http_1 = subprocess.run([*command, url], capture_output=True, check=True, timeout=20)
    assert http_1.stdout.endswith(b"400")
    assert b"--http-port" in http_1.stdout
