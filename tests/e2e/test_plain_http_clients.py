"""General HTTP clients as people use them, with nothing but JSON: requests, httpx, the standard library, curl."""

from __future__ import annotations

import asyncio
import http.client
import json
import subprocess
import urllib.request
from typing import Any

import httpx
import requests
from bug_models import Shared

BODY: dict[str, Any] = {
    "id": "plain",
    "inputs": [{"name": "X", "shape": [2, 3], "datatype": "FP32", "data": [[1, 2, 3], [4, 5, 6.5]]}],
}
ANSWER = {
    "id": "plain",
    "model_name": "rows",
    "model_version": "1",
    "outputs": [{"name": "Y", "datatype": "FP32", "shape": [2, 3], "data": [1.0, 2.0, 3.0, 4.0, 5.0, 6.5]}],
}


def infer(shared: Shared) -> str:
    return f"http://127.0.0.1:{shared.server.port}/v2/models/rows/infer"


def test_requests(shared: Shared) -> None:
    with requests.Session() as session:
        session.trust_env = False
        for _ in range(3):
            answer = session.post(infer(shared), json=BODY, timeout=20)
            assert (answer.status_code, answer.json()) == (200, ANSWER)
            assert answer.encoding in ("utf-8", None)
        refused = session.post(infer(shared), json={"inputs": []}, timeout=20)
        assert refused.status_code == 400
        assert "missing required input(s) ['X']" in refused.json()["error"]


def test_requests_with_a_generator_sends_chunks(shared: Shared) -> None:
    text = json.dumps(BODY).encode()
    pieces = (text[start : start + 7] for start in range(0, len(text), 7))
    with requests.Session() as session:
        session.trust_env = False
        assert session.post(infer(shared), data=pieces, timeout=20).json() == ANSWER


def test_httpx_side_by_side(shared: Shared) -> None:
    async def talk() -> list[httpx.Response]:
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            return await asyncio.gather(*(client.post(infer(shared), json=BODY) for _ in range(50)))

    assert [answer.json() for answer in asyncio.run(talk())] == [ANSWER] * 50


def test_the_standard_library(shared: Shared) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    question = urllib.request.Request(infer(shared), json.dumps(BODY).encode(), {"Content-Type": "application/json"})
    with opener.open(question, timeout=20) as answer:
        assert json.load(answer) == ANSWER
    connection = http.client.HTTPConnection("127.0.0.1", shared.server.port, timeout=20)
    for _ in range(3):
        connection.request("POST", "/v2/models/rows/infer", json.dumps(BODY))
        assert json.load(connection.getresponse()) == ANSWER
    connection.close()


def test_curl(shared: Shared) -> None:
    command = ["curl", "-sS", "--noproxy", "*", "--compressed", "-d", json.dumps(BODY), infer(shared)]
    done = subprocess.run(command, capture_output=True, timeout=20, check=True)
    assert json.loads(done.stdout) == ANSWER
