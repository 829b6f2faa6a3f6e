"""Configs: completed from the trees, honoured where they can be, refused at load where they cannot."""

from __future__ import annotations

import numpy as np
import pytest
from fil_models import (
    CLASSES,
    FEATURES,
    PROBABILITIES,
    REGRESSOR,
    answer,
    bare_config,
    booster,
    config,
    document,
    lightgbm_booster,
    load,
    model_folder,
    rows,
)

from bident.backends.base import BackendOptions
from bident.backends.fil import FilBackend
from bident.errors import ConfigError, ServeError
from bident.model.config import ModelConfig
from bident.wire.datatypes import FP32


@pytest.fixture
def binary(tmp_path):
    return model_folder(tmp_path / "binary", document(booster()))


@pytest.fixture
def classes(tmp_path):
    return model_folder(tmp_path / "classes", document(booster("multi:softprob", "classes")))


class TestComplete:
    def test_no_config_at_all(self, binary):
        completed = FilBackend().complete(binary, bare_config())
        assert completed.max_batch_size == 8192
        assert completed.dynamic_batching is not None
        (rows_spec,), (output,) = completed.inputs.values(), completed.outputs.values()
        assert (rows_spec.name, rows_spec.datatype, rows_spec.dims) == ("input__0", FP32, (FEATURES,))
        assert (output.name, output.datatype, output.dims) == ("output__0", FP32, (1,))
        assert answer(load(binary, completed), rows(3)).shape == (3, 1)

    @pytest.mark.parametrize(("parameters", "width"), [({}, 1), ({"predict_proba": "true"}, 3)])
    def test_multiclass_width(self, classes, parameters, width):
        completed = FilBackend().complete(classes, bare_config(parameters))
        assert completed.outputs["output__0"].dims == (width,)
        assert answer(load(classes, completed), rows(3)).shape == (3, width)

    def test_both_probabilities_of_a_binary_model(self, binary):
        completed = FilBackend().complete(binary, bare_config({"predict_proba": "true"}))
        assert completed.outputs["output__0"].dims == (2,)

    def test_the_servers_wish_for_batch_sizes(self, binary):
        backend = FilBackend(BackendOptions(own={"default-max-batch-size": "16"}))
        assert backend.complete(binary, bare_config()).max_batch_size == 16

    def test_what_is_declared_stays(self, binary):
        declared = config(PROBABILITIES, max_batch_size=7)
        assert FilBackend().complete(binary, declared).to_proto() == declared.to_proto()

    def test_a_half_declared_config(self, binary):
        proto = config(max_batch_size=7).to_proto()
        del proto.output[:]
        completed = FilBackend().complete(binary, ModelConfig.from_proto(proto))
        assert (completed.max_batch_size, completed.dynamic_batching) == (7, None)
        assert completed.outputs["output__0"].dims == (1,)

    def test_a_half_declared_config_without_batching(self, binary):
        proto = config(max_batch_size=0, output=(-1, 1)).to_proto()
        del proto.input[:]
        completed = FilBackend().complete(binary, ModelConfig.from_proto(proto))
        assert completed.inputs["input__0"].dims == (-1, FEATURES)
        assert answer(load(binary, completed), rows(4)).shape == (4, 1)


class TestHonoured:
    """Names, datatypes and shapes that differ from Triton's but can only mean one thing."""

    @pytest.mark.parametrize("count", [0, 1, 2, 17, 1000])
    def test_batch_sizes(self, binary, count):
        got = answer(load(binary, config(PROBABILITIES)), rows(count))
        assert (got.shape, got.dtype) == ((count, 1), np.float32)

    @pytest.mark.parametrize(
        ("datatype", "numpy"),
        [("INT16", "i2"), ("INT64", "i8"), ("UINT8", "u1"), ("FP64", "f8"), ("FP16", "f2"), ("BOOL", "?")],
    )
    def test_odd_names_and_datatypes(self, binary, datatype, numpy):
        wanted = config(PROBABILITIES, names=("features", "score"), datatypes=(f"TYPE_{datatype}", "TYPE_FP64"))
        inputs = np.abs(rows(20, missing=0) * 2).astype(numpy)
        got = load(binary, wanted).execute({"features": inputs})["score"]
        assert got.dtype == np.float64
        np.testing.assert_allclose(got[:, 0], booster().inplace_predict(inputs.astype(np.float32)), atol=1e-5)

    def test_classes_as_integers(self, classes):
        got = answer(load(classes, config(CLASSES, datatypes=("TYPE_FP32", "TYPE_INT64"))), rows(50))
        assert got.dtype == np.int64
        assert set(got.ravel()) == {0, 1, 2}

    @pytest.mark.parametrize("features", [(2, 3), (-1,), (-1, 3), (FEATURES, 1)])
    def test_shapes_of_a_row(self, binary, features):
        inputs = rows(9)
        shaped = inputs.reshape(
            9, *(dim if dim > 0 else FEATURES // max(1, 3 * (len(features) - 1)) for dim in features)
        )
        got = answer(load(binary, config(PROBABILITIES, features=features)), shaped)
        np.testing.assert_allclose(got[:, 0], booster().inplace_predict(inputs), atol=1e-5)

    def test_any_width_of_output(self, classes):
        assert answer(load(classes, config(PROBABILITIES, output=(-1,))), rows(4)).shape == (4, 3)

    def test_reshape_to_a_scalar(self, binary):
        proto = config(PROBABILITIES).to_proto()
        proto.output[0].reshape.SetInParent()
        got = answer(load(binary, ModelConfig.from_proto(proto)), rows(4))
        np.testing.assert_allclose(got, booster().inplace_predict(rows(4)), atol=1e-5)

    @pytest.mark.parametrize(
        ("features", "output", "given", "got"),
        [
            ((FEATURES,), (1,), (FEATURES,), (1,)),
            ((-1, FEATURES), (-1, 1), (5, FEATURES), (5, 1)),
            ((-1, FEATURES), (-1,), (5, FEATURES), (5,)),
            ((2, -1, FEATURES), (2, -1, 1), (2, 3, FEATURES), (2, 3, 1)),
        ],
    )
    def test_without_batching(self, binary, features, output, given, got):
        wanted = config(PROBABILITIES, features=features, output=output, max_batch_size=0)
        inputs = rows(6)[: int(np.prod(given)) // FEATURES]
        result = answer(load(binary, wanted), inputs.reshape(given))
        assert result.shape == got
        np.testing.assert_allclose(result.ravel(), booster().inplace_predict(inputs), atol=1e-5)

    def test_views_of_any_kind(self, binary):
        instance = load(binary, config(PROBABILITIES))
        inputs = rows(40)
        expected = booster().inplace_predict(inputs)
        unaligned = np.frombuffer(b"x" + inputs.tobytes(), np.uint8)[1:].view(np.float32).reshape(inputs.shape)
        wide = np.repeat(inputs, 2, axis=1)[:, ::2]
        frozen = inputs.copy()
        frozen.flags.writeable = False
        for view in (unaligned, wide, frozen, np.asfortranarray(inputs)):
            np.testing.assert_allclose(answer(instance, view)[:, 0], expected, atol=1e-5)


def two_inputs() -> ModelConfig:
    proto = config(CLASSES).to_proto()
    proto.input.add(name="input__1", data_type=proto.input[0].data_type, dims=[1])
    return ModelConfig.from_proto(proto)


def two_outputs(name: str) -> ModelConfig:
    proto = config(CLASSES).to_proto()
    proto.output.add(name=name, data_type=proto.input[0].data_type, dims=[7])
    return ModelConfig.from_proto(proto)


class TestRefused:
    """At load, with what fil needs."""

    @pytest.mark.parametrize(
        ("wanted", "message"),
        [
            (
                config(CLASSES, features=(32,)),
                r"input 'input__0' of model 'forest' has dims \[32\].*6 features: set dims: \[ 6 \]",
            ),
            (config(CLASSES, features=(4, 2)), r"has dims \[4, 2\].* 6 features"),
            (config(CLASSES, features=(-1, 4)), r"has dims \[-1, 4\].* 6 features"),
            (config(CLASSES, features=(-1, -1)), r"has dims \[-1, -1\].* 6 features"),
            (config(CLASSES, datatypes=("TYPE_STRING", "TYPE_FP32")), "fil needs numbers: input 'input__0'.*TYPE_FP32"),
            (
                config(CLASSES, datatypes=("TYPE_FP32", "TYPE_STRING")),
                "'output__0'.*TYPE_STRING, which cannot hold scores",
            ),
            (config(PROBABILITIES, datatypes=("TYPE_FP32", "TYPE_INT32")), "TYPE_INT32, which cannot hold scores"),
            (
                config(CLASSES, output=(2,)),
                r"has dims \[2\].*predict_proba=false: set dims: \[ 1 \], or parameter predict_proba",
            ),
            (config(CLASSES, output=(5,)), r"has dims \[5\].*set dims: \[ 1 \]$"),
            (config(REGRESSOR, output=(2,)), r"has dims \[2\].*set dims: \[ 1 \]$"),
            (config(PROBABILITIES, output=(3,)), r"has dims \[3\].*set dims: \[ 1 \] or \[ 2 \]"),
            (config(CLASSES, output=(1, 1, 1), max_batch_size=0), r"declare \[ -1, 1 \] for"),
            (two_inputs(), r"fil needs exactly one input \(input__0 TYPE_FP32 \[ 6 \]\).*'input__0', 'input__1'"),
            (
                two_outputs("output__1"),
                "gives one output.*treeshap_output; model 'forest' declares 'output__0', 'output__1'",
            ),
            (two_outputs("treeshap_outptu"), "did you mean 'treeshap_output' by 'treeshap_outptu'"),
        ],
    )
    def test_binary(self, binary, wanted, message):
        with pytest.raises(ConfigError, match=message):
            load(binary, wanted)

    def test_multiclass(self, classes):
        with pytest.raises(ConfigError, match=r"has dims \[2\].*predict_proba=true: set dims: \[ 3 \]"):
            load(classes, config(PROBABILITIES, output=(2,)))
        with pytest.raises(ConfigError, match="or parameter predict_proba to 'true' for probabilities"):
            load(classes, config(CLASSES, output=(3,)))

    def test_a_request_of_another_width(self, binary):
        instance = load(binary, config(PROBABILITIES, features=(-1,)))
        with pytest.raises(ServeError, match=r"unexpected shape for input 'input__0': \[2, 5\].*6 features"):
            answer(instance, np.zeros((2, 5), np.float32))


class TestContributionsRefused:
    """Where they cannot be computed, loading says so, never a request."""

    @pytest.mark.parametrize(
        ("wanted", "message"),
        [
            (config(CLASSES, contributions=6), r"'treeshap_output' .*has dims \[6\]: set dims: \[ 7 \]"),
            (config(CLASSES, contributions=7, max_batch_size=0), "needs max_batch_size > 0"),
        ],
    )
    def test_declared_wrongly(self, binary, wanted, message):
        with pytest.raises(ConfigError, match=message):
            load(binary, wanted)

    def test_categories(self, tmp_path):
        text = lightgbm_booster(categorical=True, max_cat_to_onehot=1).model_to_string()
        with pytest.raises(ConfigError, match="numerical features only"):
            load(model_folder(tmp_path, text, "model.txt"), config(CLASSES, contributions=7))
