"""A plain HTTP client for the end-to-end tests: it sends what a test wrote, and nothing of its own."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: httpx.Headers
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The message of an error answer, which must have the one form that all errors have."""
        assert self.status >= 400, (self.status, self.body[:300])
        assert self.headers["content-type"].startswith("application/json"), self.headers
        document = self.json
        assert list(document) == ["error"], document
        assert isinstance(document["error"], str), document
        return document["error"]

    def output(self, name: str = "Y") -> dict[str, Any]:
        """One output as its JSON describes it."""
        assert self.status == 200, (self.status, self.body[:500])
        length = self.headers.get("inference-header-content-length")
        document = json.loads(self.body[: int(length)]) if length else self.json
        (found,) = [output for output in document["outputs"] if output["name"] == name]
        return found

    def data(self, name: str = "Y") -> list[Any]:
        """The elements of one JSON output."""
        return self.output(name)["data"]

    @property
    def binary(self) -> bytes:
        """The part after the JSON."""
        assert self.status == 200, (self.status, self.body[:500])
        return self.body[int(self.headers["inference-header-content-length"]) :]

    def refused(self, *fragments: str, status: int = 400) -> str:
        """Assert an error of ``status`` whose message has all ``fragments``; returns the message."""
        assert self.status == status, (self.status, self.body[:500])
        message = self.error
        missing = [fragment for fragment in fragments if fragment not in message]
        assert not missing, f"{missing} not in: {message}"
        return message


def tensor(name: str, datatype: Any, shape: Any, data: Any = None, **parameters: Any) -> dict[str, Any]:
    """One input of a request, as JSON; without ``data`` it takes its bytes from elsewhere."""
    item: dict[str, Any] = {"name": name, "shape": shape, "datatype": datatype}
    if parameters:
        item["parameters"] = parameters
    if data is not None:
        item["data"] = data
    return item


def x(datatype: str, data: Any, shape: Any = None) -> dict[str, Any]:
    """The input X, a vector unless told otherwise."""
    return tensor("X", datatype, [len(data)] if shape is None else shape, data)


def binary_body(document: dict[str, Any], *parts: bytes) -> tuple[bytes, dict[str, str]]:
    """A body with a binary part, and the header that says where it begins."""
    head = json.dumps(document).encode()
    return b"".join([head, *parts]), {"Inference-Header-Content-Length": str(len(head))}


class Asker:
    """Asks one server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT_SECONDS, trust_env=False)
        del self._client.headers["accept-encoding"]  # what httpx would ask for by itself

    def close(self) -> None:
        self._client.close()

    def send(
        self, method: str, path: str, body: bytes | dict[str, Any] = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        response = self._client.request(method, path, content=content, headers=headers)
        return Answer(response.status_code, response.headers, response.content)

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        return self.send("GET", path, headers=headers)

    def post(self, path: str, body: bytes | dict[str, Any] = b"", headers: dict[str, str] | None = None) -> Answer:
        return self.send("POST", path, body, headers)

    def infer(self, model: str, *inputs: dict[str, Any], version: str = "", **rest: Any) -> Answer:
        """A JSON request with these inputs; ``rest`` are further keys of its object."""
        where = f"/v2/models/{model}" + (f"/versions/{version}" if version else "")
        return self.post(f"{where}/infer", {**rest, "inputs": list(inputs)})

    def infer_text(self, model: str, body: str | bytes) -> Answer:
        """A request whose body is exactly this."""
        raw = body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
        return self.post(f"/v2/models/{model}/infer", raw)

    def infer_binary(self, model: str, inputs: Sequence[dict[str, Any]], *parts: bytes, **rest: Any) -> Answer:
        """A request whose inputs' bytes follow its JSON."""
        body, headers = binary_body({**rest, "inputs": list(inputs)}, *parts)
        return self.post(f"/v2/models/{model}/infer", body, headers)

    def load(self, name: str, **parameters: Any) -> Answer:
        body = {"parameters": parameters} if parameters else b""
        return self.post(f"/v2/repository/models/{name}/load", body)

    def unload(self, name: str) -> Answer:
        return self.post(f"/v2/repository/models/{name}/unload")

    def index(self) -> dict[str, list[dict[str, Any]]]:
        """The repository index: name to its rows."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for row in self.post("/v2/repository/index").json:
            rows.setdefault(row["name"], []).append(row)
        return rows

    def connect(self) -> socket.socket:
        """A bare connection to the server."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_SECONDS)
