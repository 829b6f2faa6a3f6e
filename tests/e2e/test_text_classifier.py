"""The article's text classifier, built by ``bident zoo`` and asked as the article asks it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import tritonclient.http as triton
from numpy.typing import NDArray

from benchmarks.servers import Bident, bident_command
from bident.zoo import text_classifier

PATH = "/v2/models/text_classifier/infer"
POSITIVE, NEGATIVE, NEUTRAL = "POSITIVE", "NEGATIVE", "NEUTRAL"


def command(*arguments: object) -> str:
    words = [str(word) for word in (bident_command(), "zoo", *arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("texts") / "model_repository"
    command("build", "text_classifier", "--into", target)
    return target


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bident]:
    with Bident(repository, tmp_path_factory.mktemp("log") / "server.log") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Bident) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}", concurrency=8, network_timeout=60) as made:
        yield made


def post(server: Bident, shape: list[int], *texts: str) -> requests.Response:
    body = {"inputs": [{"name": "TEXT", "shape": shape, "datatype": "BYTES", "data": list(texts)}]}
    return requests.post(server.url(PATH), json=body, timeout=60)


def ask(client: triton.InferenceServerClient, *texts: Any, binary: bool = True) -> tuple[list[str], NDArray[Any]]:
    """The labels, and the scores [n]."""
    return read(client.infer("text_classifier", [tensor(texts, binary)]), len(texts))


def tensor(texts: Sequence[Any], binary: bool) -> triton.InferInput:
    made = triton.InferInput("TEXT", [len(texts), 1], "BYTES")
    encoded = [item.encode() if isinstance(item, str) else item for item in texts]
    made.set_data_from_numpy(np.array(encoded, dtype=object).reshape(-1, 1), binary_data=binary)
    return made


def read(answer: triton.InferResult, count: int) -> tuple[list[str], NDArray[Any]]:
    labels, scores = answer.as_numpy("LABEL"), answer.as_numpy("SCORE")
    assert labels.shape == scores.shape == (count, 1)
    assert scores.dtype == np.float32
    return [label.decode() for label in labels[:, 0]], scores[:, 0]


def test_the_articles_first_request(server):
    answer = post(server, [1, 1], "This movie is fantastic")
    assert answer.status_code == 200
    assert answer.json() == {
        "model_name": "text_classifier",
        "model_version": "1",
        "outputs": [
            {"name": "LABEL", "datatype": "BYTES", "shape": [1, 1], "data": [POSITIVE]},
            {"name": "SCORE", "datatype": "FP32", "shape": [1, 1], "data": [pytest.approx(0.7787, abs=1e-6)]},
        ],
    }


def test_the_articles_three_texts(server):
    label, score = post(server, [3, 1], "Good movie", "Bad movie", "Just okay").json()["outputs"]
    assert label["shape"] == score["shape"] == [3, 1]
    assert label["data"] == [POSITIVE, NEGATIVE, POSITIVE]
    assert score["data"] == pytest.approx([0.7202, 0.77115, 0.61315], abs=1e-6)


def test_zoo_check_asks_both(server, repository):
    answer = command("check", "--into", repository, "--url", server.url(""))
    assert "POSITIVE 78%" in answer
    assert "POSITIVE 72%, NEGATIVE 77%, POSITIVE 61%" in answer


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("", NEUTRAL),
        ("   \n", NEUTRAL),
        ("The plane lands at noon", NEUTRAL),
        ("这部电影很好", NEUTRAL),
        ("Wunderschön, I love it \U0001f60d", POSITIVE),
        ("\U0001f62d", NEGATIVE),
        ("not good", NEGATIVE),
        ("great \x00", POSITIVE),
    ],
)
def test_texts_of_every_kind(client, text, label, binary):
    labels, scores = ask(client, text, binary=binary)
    assert labels == [label]
    assert 0.5 <= scores[0] <= 1


def test_more_feeling_is_a_higher_score(client):
    labels, scores = ask(client, "good", "very good", "VERY good!!!", "neither", "bad", "very bad", "VERY bad!!!")
    assert labels == [POSITIVE] * 3 + [NEUTRAL] + [NEGATIVE] * 3
    assert scores[0] < scores[1] < scores[2]
    assert scores[3] == 1
    assert scores[4] < scores[5] < scores[6]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([b"good", b"caf\xe9"], r"TEXT\[1\] is not UTF-8: unexpected end of data at byte 3"),
        ([b"\xff"], r"TEXT\[0\] is not UTF-8: invalid start byte at byte 0"),
        ([b"x" * 4097], r"TEXT\[0\] has 4097 bytes, more than the 4096 that are allowed"),
        (["é" * 2049], r"TEXT\[0\] has 4098 bytes"),
        (["a"] * 9, r"batch-size must be <= 8"),
    ],
)
def test_what_cannot_be_judged_is_the_clients_fault(client, texts, message):
    with pytest.raises(triton.InferenceServerException, match=message) as caught:
        ask(client, *texts)
    assert caught.value.status() == "400"


def test_the_longest_text_is_judged_soon(client):
    labels, _ = ask(client, "\U0001f600" * 1024)
    assert labels == [POSITIVE]


def test_a_bad_request_spoils_none_that_runs_with_it(client):
    asked: list[tuple[list[Any], list[str]]] = [
        (["Good movie", "Bad movie"], [POSITIVE, NEGATIVE]),
        ([b"\xff"], []),
        (["Bad movie"], [NEGATIVE]),
        (["", "love"], [NEUTRAL, POSITIVE]),
    ] * 25

    pending = [client.async_infer("text_classifier", [tensor(texts, binary=True)]) for texts, _ in asked]
    for answer, (_, labels) in zip(pending, asked, strict=True):
        if labels:
            assert read(answer.get_result(), len(labels))[0] == labels
        else:
            with pytest.raises(triton.InferenceServerException, match="not UTF-8"):
                answer.get_result()


def test_the_folder_holds_all_it_needs(repository):
    version = repository / "text_classifier" / "1"
    files = sorted(path.relative_to(version).as_posix() for path in version.rglob("*") if path.is_file())
    package = [f"vaderSentiment/{name}" for name in ("LICENSE.txt", "__init__.py", "emoji_utf8_lexicon.txt")]
    assert files == ["model.py", *package, "vaderSentiment/vaderSentiment.py", "vaderSentiment/vader_lexicon.txt"]
    source = Path(text_classifier.__file__).parent / "models" / "text_classifier" / "model.py"
    assert (version / "model.py").read_bytes() == source.read_bytes()
