"""Dify's own graph engine runs the apps that ``bident connect dify`` writes; every tool of its OpenAPI file answers.

The engine is given what Dify gives it: a sandbox for code and a storage for files, both played here.
"""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.servers import Bident, bident_command
from bident.zoo.photos import photo_file
from tests.shell import made, scripts
from tests.stack.dify_site import PYTHON, run, sandbox

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "dify.md"
MODELS = ("iris_sklearn", "iris_zipmap", "fraud_xgb", "text_classifier", "yolo_detect", "classify")
PHOTO = photo_file("chelsea.png")
IRIS = {"X_1": 5.1, "X_2": 3.5, "X_3": 1.4, "X_4": 0.2}

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bident]:
    folder = tmp_path_factory.mktemp("dify")
    repository = folder / "model_repository"
    subprocess.run([bident_command(), "zoo", "build", *MODELS, "--into", repository], check=True, timeout=120)
    with Bident(repository, folder / "server.log") as started:
        yield started


@pytest.fixture(scope="module")
def exported(server: Bident, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes what Dify needs, with further words of the command; returns the folder."""

    def export(*words: str) -> Path:
        folder = tmp_path_factory.mktemp("exported")
        address = ["--url", f"http://127.0.0.1:{server.port}", "--host", "localhost"]
        program, *page = shlex.split(scripts(PAGE)[0])
        assert program == "bident"
        subprocess.run([bident_command(), *page, *words, *address], cwd=folder, check=True, timeout=60)
        return folder / "dify"

    return export


@pytest.fixture(scope="module")
def apps(exported: Callable[..., Path]) -> Path:
    return exported() / "workflows"


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Runs an app on inputs, with Dify's engine."""
    made("dify")
    with sandbox(PHOTO) as url:

        def asked(app: Path, **inputs: Any) -> Any:
            return run(app, url, {name: value(url) if callable(value) else value for name, value in inputs.items()})

        yield asked


def test_there_is_an_app_for_each_model_that_is_no_step_of_another(apps: Path) -> None:
    assert sorted(path.stem for path in apps.iterdir()) == sorted(MODELS)


@pytest.mark.parametrize("version", ["0.6.0", "0.7.0"])
def test_iris_is_a_setosa(exported: Callable[..., Path], ask: Ask, version: str) -> None:
    app = exported("iris_sklearn", "--set", f"dsl-version={version}") / "workflows" / "iris_sklearn.yml"
    outputs = ask(app, **IRIS)["outputs"]
    assert outputs["best"] == "setosa"
    assert outputs["score"] == pytest.approx(1.0, abs=1e-3)
    assert outputs["label"] == 0
    assert [each["label"] for each in outputs["ranking"]] == ["setosa", "versicolor", "virginica"]
    assert json.loads(outputs["answer"])["best"] == "setosa"


def test_a_list_of_numbers_may_be_pasted(apps: Path, ask: Ask) -> None:
    for given in (json.dumps([0] * 32), ", ".join(["0"] * 32), "0\t" * 32):
        assert ask(apps / "fraud_xgb.yml", input__0=given)["outputs"]["output__0"] == 1
    refused = ask(apps / "fraud_xgb.yml", input__0="[1, 2]")["error"]
    assert "input__0: 2 elements do not fill the shape [32]" in refused


def test_text_arrives_as_it_was_written(apps: Path, ask: Ask, server: Bident) -> None:
    text = 'A "bad" movie,\n\t{{#start.TEXT#}} \\ really 坏'
    outputs = ask(apps / "text_classifier.yml", TEXT=text)["outputs"]
    direct = httpx.post(server.url("/v2/models/text_classifier/generate"), json={"TEXT": text}).json()
    assert (outputs["LABEL"], outputs["SCORE"]) == (direct["LABEL"], direct["SCORE"])


def photo_by_url(url: str) -> dict[str, str]:
    return {"url": f"{url}/photo.png"}


@pytest.mark.parametrize("picture", ["file", "url"])
def test_objects_are_detected(apps: Path, ask: Ask, server: Bident, tmp_path: Path, picture: str) -> None:
    """With synthetic weights what is found means nothing: it is what the server itself finds, as rows."""
    (tmp_path / "photo.png").write_bytes(PHOTO)
    given = {"file": str(tmp_path / "photo.png")} if picture == "file" else photo_by_url
    outputs = ask(apps / "yolo_detect.yml", IMAGE=given)["outputs"]
    direct = httpx.post(
        server.url("/v2/models/yolo_detect/infer"),
        content=PHOTO,
        headers={"Inference-Header-Content-Length": "0", "Accept": "application/json"},
    ).json()["outputs"]
    found = {output["name"]: output["data"] for output in direct}
    assert outputs["count"] == len(found["SCORES"])
    assert [row["LABELS"] for row in outputs["rows"]] == found["LABELS"][:30]
    assert [row["SCORES"] for row in outputs["rows"]] == found["SCORES"][:30]
    assert all(len(row["BOXES"]) == 4 for row in outputs["rows"])


def test_a_cat_is_classified_also_from_base64(exported: Callable[..., Path], ask: Ask) -> None:
    app = exported("classify", "--set", "pictures=base64") / "workflows" / "classify.yml"
    outputs = ask(app, IMAGE=base64.b64encode(PHOTO).decode())["outputs"]
    assert "cat" in outputs["rows"][0]["LABEL"]
    assert outputs["count"] == 5


def test_what_the_server_refuses_is_said(apps: Path, ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello")
    refused = ask(apps / "classify.yml", IMAGE={"file": str(tmp_path / "note.txt")})["error"]
    assert "the tensor server answered 400: in ensemble 'classify', the picture in 'IMAGE'" in refused


def test_the_openapi_file_is_one_and_every_tool_in_it_answers(exported: Callable[..., Path], ask: Ask) -> None:
    path = exported() / "openapi.json"
    judged = subprocess.run([PYTHON, "-m", "openapi_spec_validator", path], capture_output=True, text=True, check=False)
    assert judged.returncode == 0, judged.stdout + judged.stderr
    document = json.loads(path.read_text())
    given = {
        "X": [5.1, 3.5, 1.4, 0.2],
        "input__0": [0] * 32,
        "TEXT": "Bad movie",
        "IMAGE": base64.b64encode(PHOTO).decode(),
    }
    answers = {}
    for route, operations in document["paths"].items():
        operation = operations["post"]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        body = {name: as_dify_sends(schema["properties"][name], given[name]) for name in schema["required"]}
        reply = httpx.post(document["servers"][0]["url"] + route, json=body, timeout=30)
        assert reply.status_code == 200, reply.text
        answers[operation["operationId"]] = reply.json()
        promised = operation["responses"]["200"]["content"]["application/json"]["schema"]["properties"]
        assert {name for name, value in reply.json().items() if not fits(promised[name], value)} == set()
    assert sorted(answers) == sorted(f"ask_{name}" for name in MODELS)
    assert answers["ask_iris_sklearn"]["label"] == 0
    assert "cat" in answers["ask_classify"]["LABEL"][0]


def as_dify_sends(schema: dict[str, Any], value: Any) -> Any:
    """A language model writes every parameter as text; Dify's tool makes of it what the schema names."""
    written = value if isinstance(value, str) else json.dumps(value)
    if schema["type"] == "string":
        return written
    return json.loads(written)


def fits(schema: dict[str, Any], value: Any) -> bool:
    if "oneOf" in schema:
        return any(fits(one, value) for one in schema["oneOf"])
    if value is None:
        return schema.get("nullable", False)
    if schema["type"] == "array":
        return isinstance(value, list) and all(fits(schema["items"], item) for item in value)
    kinds = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}
    return isinstance(value, kinds[schema["type"]])
