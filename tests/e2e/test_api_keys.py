"""API keys over real connections: what is open, what is not, and keys that change while the server runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from model_folders import write_identity
from serving import Launch, TensorServer, eventually
from wire_http import infer_body

from bident.client import Client, Credentials
from bident.errors import ServeError

KEY = "the-key-of-the-gateway"
NEW = "the-key-that-comes-after"
BEARER = {"Authorization": f"Bearer {KEY}"}


def write_keys(path: Path) -> Path:
    path.write_text(f"# who may ask\n{KEY}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "keys")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("repository")
    write_identity(made, "same")
    return made


@pytest.fixture(scope="module")
def server(repository: Path, plugins: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TensorServer]:
    """One for all tests that only ask."""
    folder = tmp_path_factory.mktemp("server")
    flags = (f"--api-key-file={write_keys(folder / 'keys')}", "--model-control-mode=explicit", "--load-model=same")
    with TensorServer(repository, folder / "server.log", *flags, plugins=plugins) as made:
        yield made


def call(server: TensorServer, verb: str, path: str, **more: object) -> httpx.Response:
    return httpx.request(verb, f"http://127.0.0.1:{server.port}{path}", trust_env=False, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", "/v2"),
        ("GET", "/v2/models/same"),
        ("GET", "/v2/models/same/config"),
        ("GET", "/v2/models/stats"),
        ("POST", "/v2/models/same/infer"),
        ("POST", "/v2/models/same/generate"),
        ("POST", "/v2/repository/index"),
        ("POST", "/v2/repository/models/same/load"),
        ("POST", "/v2/repository/models/same/unload"),
        ("GET", "/v2/systemsharedmemory/status"),
        ("GET", "/v2/trace/setting"),
        ("GET", "/v2/logging"),
    ],
)
def test_without_a_key_nothing_but_health_is_answered(server: TensorServer, verb: str, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"X-Api-Key": KEY[:-1]}):
        answer = call(server, verb, path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert "API key" in answer.json()["error"]
    assert KEY not in server.log_text


def test_health_is_open_and_a_key_in_either_header_opens_the_rest(server: TensorServer) -> None:
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/same/ready"):
        assert call(server, "GET", path).status_code == 200
    for headers in (BEARER, {"X-Api-Key": KEY}):
        answer = call(server, "POST", "/v2/models/same/infer", content=infer_body([3]), headers=headers)
        assert answer.json()["outputs"][0]["data"] == [3.0]


def test_one_connection_with_and_without_a_key(server: TensorServer) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as client:
        for _ in range(3):
            body = infer_body([3])
            assert client.post("/v2/models/same/infer", content=body, headers=BEARER).status_code == 200
            assert client.post("/v2/models/same/infer", content=body).status_code == 401


def test_the_metrics_page_is_open_to_this_machine(server: TensorServer) -> None:
    assert httpx.get(f"http://127.0.0.1:{server.metrics_port}/metrics", trust_env=False).status_code == 200


def test_the_metrics_page_of_a_public_address_wants_a_key(tmp_path: Path, keys: Path, launch: Launch) -> None:
    server = launch(tmp_path, f"--api-key-file={keys}", "--http-address=0.0.0.0")
    url = f"http://127.0.0.1:{server.metrics_port}/metrics"
    assert httpx.get(url, trust_env=False).status_code == 401
    assert "nv_" in httpx.get(url, headers=BEARER, trust_env=False).text


def test_keys_change_without_a_restart(repository: Path, keys: Path, launch: Launch) -> None:
    server = launch(repository, f"--api-key-file={keys}")
    keys.write_text(f"{NEW}\n")
    eventually(lambda: call(server, "GET", "/v2", headers={"X-Api-Key": NEW}).status_code == 200, "the new key works")
    assert call(server, "GET", "/v2", headers=BEARER).status_code == 401
    keys.unlink()
    eventually(
        lambda: call(server, "GET", "/v2", headers={"X-Api-Key": NEW}) and "keys before stay valid" in server.log_text,
        "the log says that the file has gone",
    )
    assert call(server, "GET", "/v2", headers={"X-Api-Key": NEW}).status_code == 200


def test_a_public_address_without_keys_is_refused_unless_it_is_meant(tmp_path: Path, launch: Launch) -> None:
    refused = launch(tmp_path, "--http-address=0.0.0.0", wait=False)
    assert refused.wait() == 1
    assert "--api-key-file" in refused.log_text
    assert "--insecure" in refused.log_text
    launch(tmp_path, "--http-address=0.0.0.0", "--insecure")


def test_a_key_file_that_cannot_be_used_keeps_the_server_from_starting(tmp_path: Path, launch: Launch) -> None:
    refused = launch(tmp_path, f"--api-key-file={tmp_path / 'none'}", wait=False)
    assert refused.wait() == 1
    assert "cannot read it: No such file" in refused.log_text


def test_commands_show_their_key(server: TensorServer) -> None:
    url = f"http://127.0.0.1:{server.port}"
    assert Client(url, credentials=Credentials(KEY)).index()[0]["name"] == "same"
    with pytest.raises(ServeError, match="--api-key or BIDENT_API_KEY"):
        Client(url, credentials=Credentials()).index()
