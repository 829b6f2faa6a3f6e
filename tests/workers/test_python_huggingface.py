"""The sample ``text_classifier_hf`` end to end: real transformers and torch, in an environment beside the server's."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton

from benchmarks.servers import Bident
from bident.zoo import RECIPES
from tests.shell import made

# Installing takes a minute, importing torch many seconds on a busy machine.
pytestmark = pytest.mark.timeout(900)

ENVIRONMENT = Path(__file__).parents[2] / ".venvs" / "hf"
TEXTS = [
    *("This movie is fantastic", "Good movie", "Bad movie", "Just okay"),
    *("Très content", "", "mooooo 😀", "movie " * 40),  # the last is longer than the model can read
]
DEFAULT = "distilbert-base-uncased-finetuned-sst-2-english"
HUB_NAME = "someone/tiny-classifier"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LOAD_SECONDS = 300


@dataclass(frozen=True)
class Weights:
    """A folder as ``save_pretrained`` writes it, and what ``pipeline`` itself answers to TEXTS."""

    folder: Path
    labels: list[str]
    scores: list[float]


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of ``.venvs/hf``."""
    return made("hf") / "bin" / "python"


def make_weights(python: Path, folder: Path, seed: int) -> Weights:
    script = Path(__file__).with_name("huggingface_model.py")
    command = [python, script, folder, str(seed), json.dumps(TEXTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    return Weights(folder, [label for label, _ in answers], [score for _, score in answers])


@pytest.fixture(scope="module")
def local(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Weights:
    return make_weights(python, tmp_path_factory.mktemp("local") / "weights é", seed=0)


@pytest.fixture(scope="module")
def other(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Weights:
    return make_weights(python, tmp_path_factory.mktemp("other") / "weights", seed=1000)


class Repository:
    """Copies of the sample, each changed as the comments in its ``config.pbtxt`` say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sample = RECIPES["text_classifier_hf"].build(folder.with_name("zoo")).folder

    def add(self, name: str, model: str, environment: Path | None = ENVIRONMENT) -> Path:
        """A copy called ``name`` that serves ``model`` under the Python of ``environment``; returns its folder."""
        folder = self.folder / name
        shutil.copytree(self._sample, folder)
        config = folder / "config.pbtxt"
        text = config.read_text(encoding="utf-8")
        assert text.count(DEFAULT) == 1
        text = text.replace(DEFAULT, model)
        if environment:
            text = text.replace("# parameters", "parameters").replace("/path/to/environment", str(environment))
        config.write_text(text, encoding="utf-8")
        return folder


def put_into_hub_cache(cache: Path, weights: Path) -> None:
    """Lay ``weights`` where a download of HUB_NAME would have left them."""
    hub = cache / "huggingface" / "hub" / f"models--{HUB_NAME.replace('/', '--')}"
    shutil.copytree(weights, hub / "snapshots" / COMMIT)
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text(COMMIT)


@pytest.fixture(scope="module")
def server(local: Weights, other: Weights, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bident]:
    """A server without a hub, but with a cache, and four copies of the sample."""
    room = tmp_path_factory.mktemp("server")
    repository = Repository(room / "repository")
    repository.add("by_path", str(local.folder))
    shutil.copytree(other.folder, repository.add("beside", "1/weights") / "1" / "weights")
    repository.add("by_name", HUB_NAME)
    repository.add("no_packages", str(local.folder), environment=None)
    put_into_hub_cache(room / "cache", other.folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.delenv("HF_HOME", raising=False)
        flags = ("--model-control-mode=explicit", f"--model-cache-directory={room / 'cache'}")
        with Bident(repository.folder, room / "server.log", *flags) as running:
            yield running


def post(server: Bident, path: str, body: Any = None) -> tuple[int, Any]:
    request = urllib.request.Request(server.url(path), data=json.dumps(body or {}).encode())
    try:
        with urllib.request.urlopen(request, timeout=LOAD_SECONDS) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def load(server: Bident, model: str) -> None:
    assert post(server, f"/v2/repository/models/{model}/load") == (200, None), server.log.read_text()


@pytest.fixture(scope="module")
def by_path(server: Bident) -> str:
    load(server, "by_path")
    return "by_path"


def ask(server: Bident, model: str, texts: list[Any]) -> tuple[list[str], list[float]]:
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}", network_timeout=60) as client:
        text = triton.InferInput("TEXT", [len(texts), 1], "BYTES")
        text.set_data_from_numpy(np.array(texts, dtype=object).reshape(-1, 1))
        answer = client.infer(model, [text])
    labels, scores = answer.as_numpy("LABEL"), answer.as_numpy("SCORE")
    assert labels.shape == scores.shape == (len(texts), 1)
    assert scores.dtype == np.float32
    return [label.decode() for label in labels[:, 0]], scores[:, 0].tolist()


def assert_like_pipeline(server: Bident, model: str, weights: Weights) -> None:
    labels, scores = ask(server, model, TEXTS)
    assert labels == weights.labels
    assert scores == pytest.approx(weights.scores, rel=1e-5)


def test_a_folder_anywhere_answers_like_pipeline(server, by_path, local):
    assert_like_pipeline(server, by_path, local)


def test_the_articles_requests(server, by_path, local):
    body = {"inputs": [{"name": "TEXT", "shape": [3, 1], "datatype": "BYTES", "data": TEXTS[1:4]}]}
    status, answer = post(server, f"/v2/models/{by_path}/infer", body)
    assert status == 200
    label, score = answer["outputs"]
    assert (label["name"], label["datatype"], label["shape"]) == ("LABEL", "BYTES", [3, 1])
    assert label["data"] == local.labels[1:4]
    assert (score["name"], score["datatype"], score["shape"]) == ("SCORE", "FP32", [3, 1])
    assert score["data"] == pytest.approx(local.scores[1:4], rel=1e-5)


def test_what_is_not_text_is_the_clients_fault(server, by_path):
    with pytest.raises(triton.InferenceServerException, match=r"TEXT is not UTF-8: invalid start byte") as caught:
        ask(server, by_path, [b"good", b"\xff\xfe"])
    assert caught.value.status() == "400"
    assert ask(server, by_path, ["Good movie"])[0]


def test_a_folder_inside_the_models(server, other):
    load(server, "beside")
    assert_like_pipeline(server, "beside", other)


def test_a_name_on_the_hub_is_found_in_the_cache_folder(server, other):
    load(server, "by_name")
    assert_like_pipeline(server, "by_name", other)


def test_without_its_packages_the_model_says_what_to_install(server):
    status, answer = post(server, "/v2/repository/models/no_packages/load")
    assert status >= 400
    assert "No module named 'torch': pip install torch transformers, into the Python" in answer["error"]
    assert "EXECUTION_ENV_PATH" in answer["error"]
