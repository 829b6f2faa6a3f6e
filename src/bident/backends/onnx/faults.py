"""Turns what ONNX Runtime raises into errors that a person can act upon."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bident.backends.onnx.modelfile import diagnose
from bident.backends.onnx.signature import DeclaredTensor, Signature, spell
from bident.errors import Code, ConfigError, ServeError, invalid_arg
from bident.wire.datatypes import from_numpy

_STATUS = re.compile(r"^\[ONNXRuntimeError\] : (\d+) : \w+ : ")
_SOURCE_PLACE = re.compile(
    r"\S+\.(?:cc|h):\d+ "  # file and line, then a C++ signature (parentheses nest once) or a bare function name
    r"(?:[^()\n]*\((?:[^()\n]|\([^()\n]*\))*\)(?: const)?(?: \[with [^\]\n]*\])?|\w+) "
)
_LIMIT = 400

_KERNEL_CURE = (
    "this ONNX Runtime has no CPU kernel for an operator of the model: upgrade onnxruntime, or export the model with "
    "other operators or types"
)
_GRAPH_CURE = (
    "check the model with onnx.checker.check_model and export it again, with a lower opset if it is newer than "
    "onnxruntime"
)


def load_error(config_name: str, path: Path, error: Exception, version: str) -> ConfigError:
    """Why ``path`` cannot be loaded: what the file is and the cure, with ONNX Runtime's own words."""
    words = _readable(error).replace(f"Load model from {path} failed:", "").replace(f"Load model from {path} ", "")
    words = words.rstrip(".")
    start = f"unable to load model '{config_name}' from {path}: "
    problem = diagnose(path)
    if problem:
        return ConfigError(f"{start}{problem} ({words}; onnxruntime {version})")
    cure = _KERNEL_CURE if type(error).__name__ == "NotImplemented" else _GRAPH_CURE
    return ConfigError(f"{start}{words}; {cure} (onnxruntime {version})")


def run_error(
    config_name: str, error: Exception, inputs: Mapping[str, NDArray[Any]], signature: Signature
) -> ServeError:
    """What a failed execution answers: INVALID_ARG if an input does not fit the model, else INTERNAL."""
    misfit = _misfit(inputs, signature)
    if misfit:
        return invalid_arg(f"model '{config_name}': {misfit}")
    fed = ", ".join(_describe(name, array) for name, array in inputs.items())
    return ServeError(Code.INTERNAL, f"{_readable(error)} (model '{config_name}', inputs {fed or 'none'})")


def _readable(error: Exception) -> str:
    """The first line of an error, as Triton words it, without source files and C++ signatures."""
    text = str(error).strip()
    status = _STATUS.match(text)
    head = f"onnx runtime error {status[1]}: " if status else "onnx runtime error: "
    body = _SOURCE_PLACE.sub("", text[status.end() :] if status else text).strip()
    line = " ".join(body.partition("\n")[0].split()) or type(error).__name__
    return head + (line if len(line) <= _LIMIT else f"{line[:_LIMIT]}...")


def _describe(name: str, array: NDArray[Any]) -> str:
    datatype = from_numpy(array.dtype)
    return f"'{name}' {datatype.name if datatype else array.dtype} {spell(array.shape)}"


def _misfit(inputs: Mapping[str, NDArray[Any]], signature: Signature) -> str:
    """How the inputs disagree with the model's own declaration; empty when they do not."""
    sizes: dict[str, tuple[str, int]] = {}
    for name, array in inputs.items():
        declared = signature.feed(name)
        if declared is None:
            continue
        problem = _misfit_of_one(array, declared) or _misfit_of_symbols(array, declared, sizes)
        if problem:
            return problem
    missing = [str(tensor) for name, tensor in signature.inputs.items() if tensor.is_tensor and name not in inputs]
    return f"input {', '.join(missing)} is missing" if missing else ""


def _misfit_of_one(array: NDArray[Any], declared: DeclaredTensor) -> str:
    if not declared.dims:
        return ""
    fits = len(array.shape) == len(declared.dims) and all(
        model in (-1, got) for model, got in zip(declared.dims, array.shape, strict=True)
    )
    if fits:
        return ""
    return f"unexpected shape for input '{declared.name}'. Expected {spell(declared.dims)}, got {spell(array.shape)}"


def _misfit_of_symbols(array: NDArray[Any], declared: DeclaredTensor, sizes: dict[str, tuple[str, int]]) -> str:
    """Dimensions of one symbolic name must be equal in all inputs; ``sizes`` collects them."""
    for symbol, got in zip(declared.shape, array.shape, strict=False):
        if not isinstance(symbol, str) or not symbol:
            continue
        other, size = sizes.setdefault(symbol, (declared.name, got))
        if size != got:
            return (
                f"unexpected shape for input '{declared.name}': its dimension '{symbol}' is {got}, but in input "
                f"'{other}' the same dimension is {size}"
            )
    return ""
