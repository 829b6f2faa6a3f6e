"""The two text classifiers as recipes: what they write, what they refuse, and what may be changed."""

from __future__ import annotations

import hashlib
import sys
from contextlib import contextmanager

import numpy as np
import pytest

from bident.cli import main
from bident.errors import Code, ServeError
from bident.zoo import RECIPES, text_classifier
from bident.zoo.text_classifier import texts
from tests.unit.zoo.plain_models import run_python

HF = RECIPES["text_classifier_hf"]


@contextmanager
def unreachable(*_files):
    raise ServeError(Code.UNAVAILABLE, "cannot fetch vaderSentiment==3.3.2 from the package index: no network")
    yield


def test_without_the_index_the_build_says_so_and_leaves_nothing(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(text_classifier, "unpacked", unreachable)
    with pytest.raises(SystemExit) as done:
        main(["zoo", "build", "text_classifier", "--into", str(tmp_path)])
    assert done.value.code == 1
    assert "text_classifier: cannot fetch vaderSentiment==3.3.2 from the package index" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_package_is_whole_and_unmodified(repository):
    package = repository / "text_classifier" / "1" / "vaderSentiment"
    assert {path.name for path in package.iterdir()} == {file.member.split("/")[-1] for file in text_classifier.FILES}
    for file in text_classifier.FILES:
        written = package / file.member.split("/")[-1]
        assert hashlib.sha256(written.read_bytes()).hexdigest() == file.sha256
    assert "MIT" in (package / "LICENSE.txt").read_text()


@pytest.mark.parametrize("word", ["good", "bad", "table", "", "不错", "not bad at all", "😀" * 5])
def test_scores_are_those_of_vader(repository, config_of, word, monkeypatch):
    folder = repository / "text_classifier"
    monkeypatch.syspath_prepend(str(folder / "1"))
    from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

    compound = SentimentIntensityAnalyzer().polarity_scores(word)["compound"]
    answer = run_python(folder, config_of(folder), texts(word))
    label = "NEUTRAL" if abs(compound) < 0.05 else ("POSITIVE" if compound > 0 else "NEGATIVE")
    score = 1 - abs(compound) if label == "NEUTRAL" else 0.5 + abs(compound) / 2
    assert answer["LABEL"].tolist() == [[label.encode()]]
    assert answer["SCORE"].dtype == np.float32
    assert answer["SCORE"].tolist() == [[pytest.approx(score, abs=1e-6)]]


def test_no_text_is_no_answer(repository, config_of):
    folder = repository / "text_classifier"
    answer = run_python(folder, config_of(folder), texts())
    assert answer["LABEL"].shape == answer["SCORE"].shape == texts()["TEXT"].shape


def test_the_hugging_face_sample_builds_without_its_packages(tmp_path, monkeypatch, config_of):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "transformers", None)
    config = config_of(HF.build(tmp_path).folder)
    assert (config.backend, config.max_batch_size) == ("python", 8)
    assert [(tensor.name, list(tensor.dims)) for tensor in config.input] == [("TEXT", [1])]
    assert [(tensor.name, list(tensor.dims)) for tensor in config.output] == [("LABEL", [1]), ("SCORE", [1])]
    assert {key: value.string_value for key, value in config.parameters.items()} == {
        "MODEL": "distilbert-base-uncased-finetuned-sst-2-english"
    }
    with pytest.raises(ImportError, match="pip install torch transformers"):
        run_python(tmp_path / HF.name, config, texts("good"))


def test_changing_the_model_survives_another_build(tmp_path):
    config = HF.build(tmp_path).folder / "config.pbtxt"
    changed = config.read_text().replace("distilbert-base-uncased-finetuned-sst-2-english", "/my/weights")
    config.write_text(changed)
    assert not HF.build(tmp_path).fresh
    assert config.read_text() == changed


LABELS = np.array([[b"LABEL_3"], ["très".encode()], [b"x"]], dtype=object)
SCORES = np.array([[0.25], [1.0], [0.5]], dtype=np.float32)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, None),
        ({"LABEL": np.array([[b""], [b"a"], [b"b"]], dtype=object)}, "a label for each text"),
        ({"LABEL": LABELS.reshape(-1)}, "of shape"),
        ({"SCORE": SCORES + 1}, "probabilities"),
        ({"SCORE": SCORES * np.nan}, "probabilities"),
    ],
)
def test_what_every_classifier_has_to_answer(tmp_path, changed, says):
    (question,) = HF.questions(HF.build(tmp_path).facts)
    assert question.inputs()["TEXT"].shape == (3, 1)
    answer = {"LABEL": LABELS, "SCORE": SCORES} | changed
    if says is None:
        assert question.check(answer) == "LABEL_3 25%, très 100%, x 50%"
    else:
        with pytest.raises(ServeError, match=f"wrong answer: expected .*{says}"):
            question.check(answer)
