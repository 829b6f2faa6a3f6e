"""The engines agree with one another; the choice among them is by measuring, and only among those that do."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from fil_models import (
    PROBABILITIES,
    answer,
    booster,
    config,
    document,
    lightgbm_booster,
    load,
    model_folder,
    rows,
)

from bident.backends.fil import choosing
from bident.backends.fil.answers import Answer, Kind
from bident.backends.fil.choosing import EngineChoice, choose_engines
from bident.backends.fil.engines import Engine, OnnxEngine, TreeliteEngine, XgboostEngine
from bident.backends.fil.forest import Forest
from bident.backends.fil.loading import TreeModel, load_trees
from bident.backends.fil.onnx_trees import onnx_trees
from bident.backends.fil.xgboost_trees import can_write
from bident.errors import Code, ConfigError, ServeError

ANSWERS = [
    Answer(Kind.SCORES, 1),
    Answer(Kind.ABOVE_THRESHOLD, 1, 0.3),
    Answer(Kind.BOTH_CLASSES, 2),
]
LIGHTGBM = {
    "regression": ("real", {"reg_sqrt": True}),
    "poisson": ("positive", {}),
    "cross_entropy_lambda": ("binary", {}),
    "binary": ("binary", {"sigmoid": 2.0}),
    "multiclass": ("classes", {}),
    "multiclassova": ("classes", {"sigmoid": 0.5}),
}


def read(folder: Path, data: object, name: str = "xgboost.json") -> TreeModel:
    files = model_folder(folder, data, name)  # type: ignore[arg-type]
    return load_trees(files.version_directory / name, None)


def engines(model: TreeModel, wanted: Answer) -> list[Engine]:
    assert can_write(model.forest)
    return [
        TreeliteEngine(model.library, wanted, 1),
        OnnxEngine(model.forest, wanted, 1),
        XgboostEngine(model.forest, wanted, 1),
    ]


class TestAgreement:
    @pytest.mark.parametrize("wanted", ANSWERS, ids=lambda wanted: wanted.kind.name)
    @pytest.mark.parametrize("count", [1, 7, 600])
    def test_binary_answers(self, tmp_path, wanted, count):
        inputs = rows(count)
        first, *others = engines(read(tmp_path, document(booster())), wanted)
        for other in others:
            np.testing.assert_allclose(other.scores(inputs), first.scores(inputs), atol=1e-6)
            np.testing.assert_allclose(other.answer(inputs), first.answer(inputs), atol=1e-6)

    @pytest.mark.parametrize("wanted", [Answer(Kind.SCORES, 3), Answer(Kind.LARGEST, 1)], ids=["scores", "largest"])
    def test_multiclass_answers(self, tmp_path, wanted):
        inputs = rows(500)
        first, *others = engines(read(tmp_path, document(booster("multi:softprob", "classes"))), wanted)
        for other in others:
            np.testing.assert_allclose(other.answer(inputs), first.answer(inputs), atol=1e-6)

    @pytest.mark.parametrize(("objective", "how"), LIGHTGBM.items())
    def test_postprocessing(self, tmp_path, objective, how):
        text = lightgbm_booster(objective, how[0], **how[1]).model_to_string()
        model = read(tmp_path, text, "model.txt")
        inputs = rows(400)
        first, *others = engines(model, Answer(Kind.SCORES, model.forest.classes))
        for other in others:
            np.testing.assert_allclose(other.scores(inputs), first.scores(inputs), rtol=1e-5, atol=1e-5)

    def test_extreme_values(self, tmp_path):
        text = lightgbm_booster("regression", "real").model_to_string()
        inputs = rows(64)
        inputs[::2, 0], inputs[1::2, 1], inputs[::3, 2] = np.inf, -np.inf, np.finfo(np.float32).max
        first, *others = engines(read(tmp_path, text, "model.txt"), Answer(Kind.SCORES, 1))
        for other in others:
            np.testing.assert_allclose(other.scores(inputs), first.scores(inputs), atol=1e-6)


class TestOnnxGraph:
    @pytest.mark.parametrize("wanted", ANSWERS, ids=lambda wanted: wanted.kind.name)
    def test_is_valid(self, tmp_path, wanted):
        forest = read(tmp_path, document(booster())).forest
        model = onnx.load_from_string(onnx_trees(forest, wanted, "rows", "answer"))
        onnx.checker.check_model(model)
        assert [tensor.name for tensor in model.graph.input] == ["rows"]
        assert model.graph.output[0].name == "answer"

    def test_holds_the_trees(self, tmp_path):
        forest = read(tmp_path, document(booster())).forest
        node = onnx.load_from_string(onnx_trees(forest, ANSWERS[0], "rows", "answer")).graph.node[0]
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        assert attributes["nodes_featureids"] == forest.feature.tolist()
        assert len(attributes["nodes_modes"]) == len(forest.feature)
        assert attributes["n_targets"] == 1


class Wrong(OnnxEngine):
    def scores(self, given):
        return super().scores(given) + np.float32(2e-5)


class Failing(OnnxEngine):
    def scores(self, given):
        raise RuntimeError("out of luck")


class Missing(XgboostEngine):
    def __init__(self, *arguments):
        raise ImportError("'xgboost' is not installed")


class TestChoice:
    @pytest.fixture
    def model(self, tmp_path) -> TreeModel:
        return read(tmp_path, document(booster(rounds=20, max_depth=6)))

    def test_small_batches_go_to_onnx_runtime(self, model):
        assert choose_engines(model, ANSWERS[0], 1).best(1).name == "onnxruntime"

    @pytest.mark.parametrize(("engine", "said"), [(Wrong, "disagrees with treelite"), (Failing, "out of luck")])
    def test_one_that_is_not_equal_is_dropped(self, model, monkeypatch, caplog, engine, said):
        monkeypatch.setattr(choosing, "OnnxEngine", engine)
        choice = choose_engines(model, ANSWERS[0], 1)
        assert "onnxruntime" not in {chosen.name for chosen in choice.engines}
        assert said in caplog.text

    def test_without_xgboost(self, model, monkeypatch, caplog):
        monkeypatch.setattr(choosing, "XgboostEngine", Missing)
        choice = choose_engines(model, ANSWERS[0], 1)
        assert {chosen.name for chosen in choice.engines} <= {"onnxruntime", "treelite"}
        assert caplog.text == "", "an optional package is missing: nothing to warn about"

    def test_categories_leave_treelite(self, tmp_path):
        text = lightgbm_booster(categorical=True, max_cat_to_onehot=1).model_to_string()
        choice = choose_engines(read(tmp_path, text, "model.txt"), ANSWERS[0], 1)
        assert [engine.name for engine in choice.engines] == ["treelite"]

    def test_borders(self, model):
        one, two, three = engines(model, ANSWERS[0])
        choice = EngineChoice((one, two, three), (5, 100))
        chosen = {count: choice.best(count) for count in (1, 4, 5, 99, 100, 10_000)}
        assert chosen == {1: one, 4: one, 5: two, 99: two, 100: three, 10_000: three}
        assert str(choice) == "treelite below 5 rows, onnxruntime below 100 rows, xgboost above"

    def test_the_crossing_lies_where_the_lines_meet(self, model):
        treelite, small, large = engines(model, ANSWERS[0])
        measured = [
            {treelite: 9e-6, small: 1e-6, large: 50e-6},
            {treelite: 90e-6, small: 5e-6, large: 50e-6},
            {small: 300e-6, large: 100e-6},
            {large: 800e-6},
        ]
        choice = choosing._borders(measured)
        assert choice.engines == (small, large)
        # small: 5 + (N - 16) * 295 / 240; large: 50 + (N - 16) * 50 / 240; equal at N = 60.08.
        assert choice.borders == (61,)

    def test_a_narrow_win_changes_nothing_until_the_largest_size(self, model):
        treelite, small, large = engines(model, ANSWERS[0])
        measured = [
            {treelite: 9e-6, small: 1e-6, large: 50e-6},
            {treelite: 90e-6, small: 5e-6, large: 50e-6},
            {small: 120e-6, large: 100e-6},
            {small: 900e-6, large: 800e-6},
        ]
        choice = choosing._borders(measured)
        assert (choice.engines, choice.borders) == ((small, large), (257,))

    def test_an_engine_that_is_slow_everywhere_is_never_chosen(self, model):
        treelite, small, large = engines(model, ANSWERS[0])
        measured = [{treelite: 9e-6 * size, small: 1e-6 * size, large: 2e-6 * size} for size in (1, 16, 256, 2048)]
        choice = choosing._borders(measured)
        assert (choice.engines, choice.borders) == ((small,), ())

    def test_what_cannot_be_computed_is_refused(self, model, monkeypatch):
        def refuse(*_: object) -> None:
            raise ServeError(Code.INTERNAL, "no")

        monkeypatch.setattr(TreeliteEngine, "scores", refuse)
        with pytest.raises(ConfigError, match="fil cannot compute"):
            choose_engines(model, ANSWERS[0], 1)


class TestForest:
    def test_thresholds_become_strict_float32_exactly(self):
        from bident.backends.fil.forest import _strict_float32

        random = np.random.default_rng(0)
        threshold = np.concatenate([random.normal(size=500), [0.1, 0.0, -0.0, 1e300, -1e300, 1e-45, np.float32(0.1)]])
        with np.errstate(over="ignore"):
            near = threshold.astype(np.float32)
        steps = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
        with np.errstate(over="ignore"):
            for or_equal in (False, True):
                strict = _strict_float32(threshold, np.full(len(threshold), or_equal))
                for values in steps:
                    exact = values.astype(np.float64)
                    truth = exact <= threshold if or_equal else exact < threshold
                    np.testing.assert_array_equal(values < strict, truth)

    def test_averages_are_applied_per_class(self, tmp_path):
        averaged = {"boosting": "rf", "bagging_fraction": 0.6, "bagging_freq": 1}
        forest = read(
            tmp_path, lightgbm_booster("multiclass", "classes", **averaged).model_to_string(), "model.txt"
        ).forest
        assert isinstance(forest, Forest)
        assert np.bincount(forest.tree_class).tolist() == [8, 8, 8]


def test_instances_run_on_several_threads_at_once(tmp_path):
    files = model_folder(tmp_path, document(booster(rounds=30)))
    instances = [load(files, config(PROBABILITIES)) for _ in range(3)]
    inputs = [rows(count, seed=count) for count in (1, 50, 900)]
    expected = [booster(rounds=30).inplace_predict(each) for each in inputs]

    def work(instance):
        for _ in range(40):
            for given, truth in zip(inputs, expected, strict=True):
                np.testing.assert_allclose(answer(instance, given)[:, 0], truth, atol=1e-5)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, instances))


def test_an_answer_is_not_overwritten_by_the_next(tmp_path):
    instance = load(model_folder(tmp_path, document(booster())), config(PROBABILITIES))
    for count in (1, 2000):
        first = answer(instance, rows(count, seed=1))
        kept = first.copy()
        answer(instance, rows(count, seed=2))
        np.testing.assert_array_equal(first, kept)


def test_loading_imports_no_python_package_of_the_libraries(tmp_path):
    """They take from 0.2 to 2 s each; their C libraries are enough."""
    files = model_folder(tmp_path, document(booster()))
    code = f"""
import sys
from pathlib import Path
from bident.backends.base import Device, ModelFiles
from bident.backends.fil import FilBackend
from bident.model.config import ModelConfig
from bident.model.proto import pb
backend, files = FilBackend(), ModelFiles(Path({str(files.directory)!r}), 1)
config = backend.complete(files, ModelConfig.from_proto(pb.ModelConfig(name="m", backend="fil")))
backend.load(files, config, Device())
print(*sorted({{"treelite", "xgboost", "scipy", "onnx", "numpy.ma"}} & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
