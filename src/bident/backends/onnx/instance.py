"""Executes a model: the hot path.

A model whose tensors numpy and ONNX Runtime both know runs on :class:`_Plain`, which adds well under
a microsecond to ``session.run``. Strings, BF16 and scalars need a translation (:class:`_Translating`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bident.backends.base import Instance
from bident.backends.onnx.check import state_outputs
from bident.backends.onnx.faults import run_error
from bident.backends.onnx.signature import DeclaredTensor, Signature, spell
from bident.errors import Code, ConfigError, ServeError, invalid_arg
from bident.model.config import ModelConfig
from bident.wire.datatypes import BYTES, DATATYPES

_BF16 = DATATYPES["BF16"]
_ONNX_BFLOAT16 = 16
"""``onnx.TensorProto.BFLOAT16``, spelled out to spare the import of ``onnx``."""

_Translation: TypeAlias = Callable[[Any], Any]


def make_instance(config: ModelConfig, session: Any, signature: Signature, run_options: Any) -> Instance:
    """An instance that fetches the outputs ``config`` declares, and no others.

    Raises ConfigError for the one combination that ONNX Runtime's Python API cannot feed.
    """
    names = list(dict.fromkeys((*config.outputs, *state_outputs(config))))
    tensors = {**signature.initializers, **signature.inputs}
    before = {name: step for name, tensor in tensors.items() if (step := _into_model(tensor))}
    after = [_out_of_model(config, signature.outputs[name]) for name in names]
    if any(signature.outputs[name].datatype is _BF16 for name in names):
        strings = [name for name in tensors if tensors[name].datatype is BYTES]
        if strings:
            raise ConfigError(
                f"model '{config.name}': ONNX Runtime for Python cannot feed strings ('{strings[0]}') to a model and "
                f"fetch BF16 from it at the same time; put a Cast to FP32 at its BF16 outputs"
            )
        return _BFloat16(config.name, session, signature, names, run_options, before, after)
    if before or any(after):
        return _Translating(config.name, session, signature, names, run_options, before, after)
    return _Plain(config.name, session, signature, names, run_options)


class _Plain(Instance):
    """Arrays go in and come out as they are."""

    def __init__(self, model: str, session: Any, signature: Signature, names: list[str], run_options: Any) -> None:
        self._model = model
        self._session = session
        self._run = _direct_run(session)
        self._signature = signature
        self._names = names
        self._options = run_options

    def execute(self, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        for array in inputs.values():
            if not array.flags.aligned:
                inputs = {name: _aligned(item) for name, item in inputs.items()}
                break
        try:
            return dict(zip(self._names, self._run(self._names, inputs, self._options)))  # noqa: B905 - strict: 0.3 us
        except Exception as error:
            raise run_error(self._model, error, inputs, self._signature) from error

    def close(self) -> None:
        # The bound method holds the session too.
        del self._session, self._run


class _Translating(_Plain):
    """Translates some inputs before the model runs and some outputs after."""

    def __init__(
        self,
        model: str,
        session: Any,
        signature: Signature,
        names: list[str],
        run_options: Any,
        before: dict[str, _Translation],
        after: list[_Translation | None],
    ) -> None:
        super().__init__(model, session, signature, names, run_options)
        self._before = before
        self._after = after

    def execute(self, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        feed: dict[str, Any] = {}
        for name, array in inputs.items():
            step = self._before.get(name)
            feed[name] = step(_aligned(array)) if step else _aligned(array)
        try:
            results = self._fetch(feed)
        except Exception as error:
            raise run_error(self._model, error, inputs, self._signature) from error
        steps = zip(self._names, self._after, results, strict=True)
        return {name: step(result) if step else result for name, step, result in steps}

    def _fetch(self, feed: dict[str, Any]) -> list[Any]:
        results: list[Any] = self._run(self._names, feed, self._options)
        return results


class _BFloat16(_Translating):
    """Fetches BF16, which ``session.run`` cannot give: every value passes as an ``OrtValue``."""

    def _fetch(self, feed: dict[str, Any]) -> list[Any]:
        from onnxruntime import OrtValue

        values = {
            name: OrtValue.ortvalue_from_numpy(np.ascontiguousarray(item)) if isinstance(item, np.ndarray) else item
            for name, item in feed.items()
        }
        results = self._session.run_with_ort_values(self._names, values, self._options)
        return [_array_of(value) for value in results]


def _direct_run(session: Any) -> Callable[..., Any]:
    """``session.run`` without the checks it makes in Python on every call, which have been made here already.

    They cost as much as a small model's whole run (docs/decisions/0003-onnxruntime-run.md). Where a
    release of ONNX Runtime is built otherwise, it is ``session.run`` itself.
    """
    inner = getattr(session, "_sess", None)
    run = getattr(inner, "run", None)
    return run if callable(run) else session.run  # type: ignore[no-any-return]


def _aligned(array: NDArray[Any]) -> NDArray[Any]:
    """``array`` at an address that fits its type: ONNX Runtime's kernels take that for granted.

    A view into a request's body may begin anywhere.
    """
    return array if array.flags.aligned else array.copy()


def _array_of(value: Any) -> NDArray[Any]:
    """The tensor of an ``OrtValue`` as an array of its own."""
    if value.data_type() != "tensor(bfloat16)":
        array: NDArray[Any] = value.numpy()
        return array
    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    raw = ctypes.string_at(value.data_ptr(), count * _BF16.size) if count else b""
    return np.frombuffer(raw, _BF16.numpy).reshape(shape)


def _into_model(declared: DeclaredTensor) -> _Translation | None:
    """What must happen to an input before ONNX Runtime takes it; None for nothing."""
    if declared.datatype is BYTES:
        return _Decoder(declared)
    if declared.datatype is _BF16:
        return _bfloat16_value
    if declared.is_tensor and not declared.dims:
        return _scalar
    return None


def _bfloat16_value(array: NDArray[Any]) -> Any:
    from onnxruntime import OrtValue

    words = np.ascontiguousarray(array).view(np.uint16)
    return OrtValue.ortvalue_from_numpy_with_onnx_type(words, _ONNX_BFLOAT16)


def _scalar(array: NDArray[Any]) -> NDArray[Any]:
    # A config without batching cannot write an empty shape, so a scalar is declared as dims [1].
    return array.reshape(())


class _Decoder:
    """BYTES to ONNX strings, which are UTF-8 text."""

    def __init__(self, declared: DeclaredTensor) -> None:
        self._name = declared.name
        self._scalar = not declared.dims

    def __call__(self, array: NDArray[Any]) -> NDArray[Any]:
        elements = array.reshape(-1).tolist()
        texts: NDArray[Any] = np.empty(len(elements), dtype=object)
        try:
            texts[:] = [element.decode() for element in elements]
        except UnicodeDecodeError:
            raise self._not_text(elements) from None
        return texts.reshape(() if self._scalar else array.shape)

    def _not_text(self, elements: list[bytes]) -> ServeError:
        for index, element in enumerate(elements):
            try:
                element.decode()
            except UnicodeDecodeError as error:
                return invalid_arg(
                    f"input '{self._name}': element {index} is not valid UTF-8 ({error.reason} at byte {error.start}); "
                    f"the strings of an ONNX model are UTF-8 text"
                )
        return invalid_arg(f"input '{self._name}' is not valid UTF-8")


def _out_of_model(config: ModelConfig, declared: DeclaredTensor) -> _Translation | None:
    """What must happen to an output of ONNX Runtime; None for nothing."""
    encode = _encode if declared.datatype is BYTES else None
    if declared.dims:
        return encode
    spec = config.outputs.get(declared.name)
    if spec is None:
        return encode
    rank = len(spec.model_dims) + (config.max_batch_size > 0)
    fits = _RankCheck(config, declared, rank)
    return (lambda array: fits(_encode(array))) if encode else fits


def _encode(array: NDArray[Any]) -> NDArray[Any]:
    """ONNX strings to BYTES."""
    texts = array.reshape(-1).tolist()
    elements: NDArray[Any] = np.empty(len(texts), dtype=object)
    elements[:] = [text.encode() for text in texts]
    return elements.reshape(array.shape)


class _RankCheck:
    """For outputs whose rank the model file leaves open: a scalar becomes [1], another rank is an error."""

    def __init__(self, config: ModelConfig, declared: DeclaredTensor, rank: int) -> None:
        self._config = config
        self._name = declared.name
        self._rank = rank

    def __call__(self, array: NDArray[Any]) -> NDArray[Any]:
        batching = self._config.max_batch_size > 0
        if array.ndim == 0 and not batching:
            return array.reshape((1,) * self._rank)
        if array.ndim != self._rank:
            raise ServeError(
                Code.INTERNAL,
                f"model '{self._config.name}', output '{self._name}': the model gave {array.ndim} dimensions (shape "
                f"{spell(array.shape)}) but the model configuration specifies {self._rank}"
                + (" (the batch dimension included); set max_batch_size: 0, or correct its dims" if batching else ""),
            )
        return array
