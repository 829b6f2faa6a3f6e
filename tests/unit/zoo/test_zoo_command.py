"""``bident zoo list``, ``build`` and ``check``, as a person types them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

from bident.cli import main
from bident.errors import Code, ServeError
from bident.zoo import RECIPES, TEXT_SAMPLES, TextSample
from tests.unit.cli.fake_ollama import fake_ollama

SYNTHETIC = ["resnet18", "yolov8n", "yolo_detect", "classify_resnet18"]
"""Where the two networks are, and what is built around them."""

IN_ALL = [name for name, recipe in RECIPES.items() if recipe.in_all]
"""What `--all` builds."""


@dataclass(frozen=True)
class Result:
    exit_code: int
    stdout: str
    stderr: str


@pytest.fixture
def run(capfd, monkeypatch):
    """Runs ``bident zoo``. Text models are never fetched: building them finds them there, listing them does not."""
    monkeypatch.setattr(TextSample, "build", lambda *_, **__: False)
    monkeypatch.setattr(TextSample, "built", lambda *_: False)

    def run(*arguments):
        with pytest.raises(SystemExit) as done:
            main(["zoo", *[str(argument) for argument in arguments]])
        return Result(int(done.value.code or 0), *capfd.readouterr())

    return run


def by_model(table, names):
    """The lines of a table by the model they are about; each of ``names`` has one."""
    lines = {line.split()[0]: line for line in table.splitlines() if line.split() and line.split()[0] in RECIPES}
    assert set(lines) == set(names)
    return lines


def test_list_before_anything_is_built(run, tmp_path):
    result = run("list", "--into", tmp_path, "--json")
    rows = {row["model"]: row for row in json.loads(result.stdout)}
    assert list(rows) == [*RECIPES, *TEXT_SAMPLES]
    assert not any(row["built"] for row in rows.values())
    assert rows["resnet18"]["weights"] == "real or synthetic"
    assert rows["imagenet_lite0"]["weights"] == "real"
    assert rows["yolo_postprocess"]["weights"] == "none"


def test_list_shows_what_is_built_and_which_weights_are_synthetic(run, repository):
    rows = by_model(run("list", "--into", repository).stdout, RECIPES)
    assert [name for name in RECIPES if "yes" in rows[name]] == IN_ALL
    assert [name for name in RECIPES if "synthetic" in rows[name]] == SYNTHETIC


def test_build_one_then_again(run, tmp_path):
    first = run("build", "iris_sklearn", "--into", tmp_path)
    assert (first.exit_code, "built, real weights" in first.stdout) == (0, True)
    assert (tmp_path / "iris_sklearn" / "1" / "model.onnx").is_file()
    second = run("build", "iris_sklearn", "--into", tmp_path)
    assert (second.exit_code, "was there already" in second.stdout) == (0, True)


def test_build_all_builds_nothing_twice(run, repository):
    result = run("build", "--all", "--into", repository)
    assert result.exit_code == 0
    assert result.stdout.count("was there already") == len(IN_ALL) + len(TEXT_SAMPLES)
    assert result.stdout.count("synthetic weights") == len(SYNTHETIC)


def test_build_says_why_weights_are_synthetic(run, tmp_path, monkeypatch):
    from bident.zoo import yolov8n

    def unreachable(*arguments):
        raise ServeError(Code.UNAVAILABLE, "no [network] here")

    monkeypatch.setattr(yolov8n, "_export", unreachable)
    result = run("build", "yolov8n", "--into", tmp_path)
    assert result.exit_code == 0
    assert "no [network] here" in result.stderr


def test_build_says_what_a_model_still_needs(run, tmp_path, monkeypatch):
    monkeypatch.setattr("bident.cli.zoo.find_spec", lambda name: None if name == "torch" else object())
    result = run("build", "text_classifier_hf", "--into", tmp_path)
    assert result.exit_code == 0
    assert "built, no weights yet" in result.stdout
    assert "real weights" not in result.stdout
    assert result.stderr.startswith("text_classifier_hf: it needs torch and transformers (torch not installed here). ")
    assert "Its weights are fetched at the first load." in result.stderr
    assert "Next: pip install torch (or EXECUTION_ENV_PATH in its config.pbtxt), then 'bident up" in result.stderr
    monkeypatch.setattr("bident.cli.zoo.find_spec", lambda name: object())
    assert "(installed here). Its weights" in run("build", "text_classifier_hf", "--into", tmp_path).stderr


def test_a_failing_python_model_fills_one_line(run, tmp_path, repository, server, monkeypatch):
    frames = "\n".join(f"  <frozen importlib._bootstrap>({number}): import" for number in range(9))
    error = ServeError(Code.INTERNAL, f"message: KeyError: 'x'\n\nAt:\n{frames}\n")
    monkeypatch.setattr("bident.cli.zoo._infer", lambda *_: (_ for _ in ()).throw(error))
    result = run("check", "text_classifier", "--url", server.url, "--into", repository)
    assert result.exit_code == 1
    assert "message: KeyError: 'x'" in result.stdout
    assert "importlib" not in result.stdout
    said = run("check", "text_classifier", "--url", server.url, "--into", repository, "--json").stdout
    assert json.loads(said)[0]["answer"] == error.message


def test_build_of_an_unknown_name(run, tmp_path):
    result = run("build", "fraud_xbg", "--into", tmp_path)
    assert result.exit_code == 1
    assert "did you mean 'fraud_xgb'?" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["build"], ["build", "--all", "fraud_xgb"]])
def test_build_needs_names_or_all(run, arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert "--all" in result.stderr


def test_a_failing_build_names_the_cause_and_the_others_go_on(run, tmp_path):
    (tmp_path / "iris_sklearn").mkdir()
    result = run("build", "iris_sklearn", "iris_zipmap", "--into", tmp_path)
    assert result.exit_code == 1
    assert "iris_sklearn: " in result.stderr
    assert "not made by the zoo" in result.stderr
    assert (tmp_path / "iris_zipmap" / "config.pbtxt").is_file()


def test_check_asks_every_model_and_all_answer_right(run, repository, server):
    result = run("check", "--url", server.url, "--into", repository)
    assert result.exit_code == 0, result.stdout
    lines = by_model(result.stdout, IN_ALL)
    assert "Egyptian cat 38%" in lines["imagenet_lite0"]
    assert "synthetic" in lines["resnet18"]
    assert all("ms" in line and "yes" in line for line in lines.values())


def test_images_are_sent_as_binary_data_and_rows_as_json(run, repository, server):
    run("check", "iris_sklearn", "resnet18", "--url", server.url, "--into", repository)
    assert server.requests == [("iris_sklearn", False), ("resnet18", True)]


def test_check_as_json(run, repository, server):
    result = run("check", "iris_sklearn", "--url", server.url, "--into", repository, "--json")
    (row,) = json.loads(result.stdout)
    assert row.pop("latency_ms") > 0
    assert row == {
        "model": "iris_sklearn",
        "backend": "onnxruntime",
        "weights": "real",
        "input": "[5.1, 3.5, 1.4, 0.2]",
        "answer": "setosa 1.0000",
        "ok": True,
    }


def test_one_wrong_answer_fails_the_check(run, repository, server):
    server.alter = lambda model, answer: {**answer, "label": answer["label"] + 1} if model == "iris_sklearn" else answer
    result = run("check", "iris_sklearn", "iris_zipmap", "--url", server.url, "--into", repository, "--json")
    assert result.exit_code == 1
    rows = json.loads(result.stdout)
    assert [row["ok"] for row in rows] == [False, True]
    assert "wrong answer: expected label 0" in rows[0]["answer"]


def test_a_model_that_the_server_does_not_have_fails_the_check(run, repository, server):
    server.missing = {"iris_sklearn"}
    result = run("check", "iris_sklearn", "--url", server.url, "--into", repository)
    assert result.exit_code == 1
    assert "Request for unknown model" in result.stdout


def test_a_model_that_is_not_built_here_fails_the_check_and_is_not_asked(run, server, tmp_path):
    result = run("check", "iris_sklearn", "--url", server.url, "--into", tmp_path)
    assert result.exit_code == 1
    assert "not in " in result.stdout
    assert server.requests == []


def test_check_of_nothing(run, tmp_path):
    result = run("check", "--into", tmp_path)
    assert result.exit_code == 1
    assert "bident zoo build --all" in result.stderr


def test_check_without_a_server(run, repository):
    result = run("check", "--url", "http://127.0.0.1:9", "--into", repository)
    assert result.exit_code == 1
    assert "no server answers" in result.stderr


def test_importing_the_zoo_imports_no_recipes_dependency():
    heavy = "onnx onnxruntime sklearn skl2onnx xgboost PIL skimage"
    code = f"import sys, bident.zoo, bident.cli.zoo; print([name for name in '{heavy}'.split() if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_text_models_are_asked_too(run, repository, server):
    with fake_ollama() as ollama:
        ollama.pieces = [{"content": "The capital of France is Paris."}]
        flags = ("--url", server.url, "--text-url", ollama.url, "--into", repository, "--json")
        rows = json.loads(run("check", "iris_sklearn", "smollm2", "minilm", *flags).stdout)
        assert [(row["model"], row["ok"]) for row in rows] == [
            ("iris_sklearn", True),
            ("smollm2", True),
            ("minilm", False),
        ]
        assert rows[1]["backend"] == "llama.cpp"
        assert rows[1]["answer"] == "The capital of France is Paris."
        assert rows[1]["latency_ms"] > 0
        ollama.pieces = [{"content": "Rome."}]
        (wrong,) = json.loads(run("check", "smollm2", *flags).stdout)
        assert wrong["answer"] == "wrong answer: expected something about Paris, got Rome."
    assert "no server answers" in run("check", "smollm2", "--text-url", "http://127.0.0.1:9").stdout
