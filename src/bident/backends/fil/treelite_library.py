"""Treelite's C library, called directly.

The ``treelite`` Python package imports scipy when it is touched (0.3 s and 20 MB that nothing here
needs) and registers its log callbacks for the importing thread only. Its C API is small, documented
and stable, so the few calls needed are made through ctypes: loading takes milliseconds, and every call
releases the GIL.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.errors import Code, ConfigError, ServeError

_LOG = logging.getLogger("bident.fil")
_NUMPY_KIND = {"b": "i", "h": "i", "l": "i", "q": "i", "f": "f", "d": "f"}
_LOG_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


class _Frame(ctypes.Structure):
    """Treelite's view of one field of a model: a pointer, a struct format, sizes."""

    _fields_ = (
        ("buffer", ctypes.c_void_p),
        ("format", ctypes.c_char_p),
        ("itemsize", ctypes.c_size_t),
        ("count", ctypes.c_size_t),
    )


def shared_library(package: str, stem: str) -> ctypes.CDLL:
    """The C library that the wheel of ``package`` carries, without importing the package.

    Raises ImportError when the package or the library in it is missing or cannot be linked.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"'{package}' is not installed")
    names = {"win32": f"{stem}.dll", "darwin": f"lib{stem}.dylib"}
    path = Path(next(iter(spec.submodule_search_locations)), "lib", names.get(sys.platform, f"lib{stem}.so"))
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        cure = " (on macOS the OpenMP runtime is missing: brew install libomp)" if sys.platform == "darwin" else ""
        raise ImportError(f"cannot load {path}: {error}{cure}") from error


def _log(text: bytes) -> None:
    _LOG.debug("treelite: %s", text.decode("utf-8", "replace"))


_to_log = _LOG_CALLBACK(_log)


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    library = shared_library("treelite", "treelite")
    library.TreeliteGetLastError.restype = ctypes.c_char_p
    library.TreeliteGTILPredict.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_uint64,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    return library


def _call(function: str, *arguments: Any) -> None:
    library = _library()
    if getattr(library, function)(*arguments) != 0:
        text: str = library.TreeliteGetLastError().decode("utf-8", "replace")
        # Its own text, without the time and source position in front and the quoted input behind.
        raise ServeError(Code.INTERNAL, re.sub(r"^\[[\d:]+\] \S+:\d+: ", "", text).split("\n", 1)[0].strip())


def _array(frame: _Frame) -> NDArray[Any]:
    letter = frame.format.decode()[-1]
    dtype = np.dtype(f"{_NUMPY_KIND.get(letter, 'u')}{frame.itemsize}")
    if not frame.count:
        return np.empty(0, dtype)
    return np.frombuffer(ctypes.string_at(frame.buffer, frame.count * frame.itemsize), dtype)


class TreeliteModel:
    """A model in treelite's memory. Reading and predicting are safe from several threads at once."""

    def __init__(self, loader: str, *arguments: Any) -> None:
        """Run the C function ``loader``, which takes ``arguments`` and then the address of a handle.

        Raises ConfigError with treelite's reason.
        """
        # The registry is per thread, and models are loaded on any of them.
        _library().TreeliteRegisterLogCallback(_to_log)
        _library().TreeliteRegisterWarningCallback(_to_log)
        self._handle = ctypes.c_void_p()
        try:
            _call(loader, *arguments, ctypes.byref(self._handle))
        except ServeError as error:
            raise ConfigError(f"is refused by treelite: {error.message}") from None
        kind = ctypes.c_char_p()
        _call("TreeliteGetInputType", self._handle, ctypes.byref(kind))
        self._type = kind.value or b"float32"
        self.classes = int(self.header("num_class").max(initial=1))

    @classmethod
    def from_xgboost_json(cls, text: bytes) -> TreeliteModel:
        """Read an XGBoost model in JSON."""
        return cls("TreeliteLoadXGBoostModelFromJSONString", text, ctypes.c_size_t(len(text)), b"{}")

    @classmethod
    def from_lightgbm(cls, text: bytes) -> TreeliteModel:
        """Read a LightGBM model file's text."""
        return cls("TreeliteLoadLightGBMModelFromString", text, b"{}")

    @classmethod
    def from_checkpoint(cls, data: bytes) -> TreeliteModel:
        """Read a treelite checkpoint whose structure has been checked."""
        return cls("TreeliteDeserializeModelFromBytes", data, ctypes.c_size_t(len(data)))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _library().TreeliteFreeModel(self._handle)

    def header(self, name: str) -> NDArray[Any]:
        """A field of the model as a 1-D array (text as bytes in uint8)."""
        frame = _Frame()
        _call("TreeliteGetHeaderField", self._handle, name.encode(), ctypes.byref(frame))
        return _array(frame)

    def tree(self, index: int, name: str) -> NDArray[Any]:
        """A field of tree ``index`` as a 1-D array, one element per node where it belongs to nodes."""
        frame = _Frame()
        _call("TreeliteGetTreeField", self._handle, ctypes.c_uint64(index), name.encode(), ctypes.byref(frame))
        return _array(frame)

    def _count(self, function: str) -> int:
        count = ctypes.c_size_t()
        _call(function, self._handle, ctypes.byref(count))
        return count.value

    @property
    def trees(self) -> int:
        """How many trees there are."""
        return self._count("TreeliteQueryNumTree")

    @property
    def features(self) -> int:
        """How many features a row has."""
        return self._count("TreeliteQueryNumFeature")

    @property
    def is_double(self) -> bool:
        """Whether thresholds and leaves are float64 (LightGBM's are)."""
        return self._type == b"float64"

    def checkpoint(self) -> bytes:
        """The model as a treelite checkpoint, which any treelite of the same major version reads."""
        data, length = ctypes.POINTER(ctypes.c_char)(), ctypes.c_size_t()
        _call("TreeliteSerializeModelToBytes", self._handle, ctypes.byref(data), ctypes.byref(length))
        # Treelite's own buffer, which lasts until this thread's next call.
        return ctypes.string_at(data, length.value)

    def predict(self, rows: NDArray[np.float32], settings: GtilSettings) -> NDArray[np.float32]:
        """Postprocessed scores [N, classes] of ``rows`` [N, features], C-contiguous."""
        dtype = np.float64 if self.is_double else np.float32
        source = rows.astype(dtype, copy=False)
        scores = np.zeros((len(rows), self.classes), dtype)
        _call(
            "TreeliteGTILPredict",
            self._handle,
            source.ctypes.data,
            self._type,
            len(rows),
            scores.ctypes.data,
            settings.handle,
        )
        return scores.astype(np.float32, copy=False)


class GtilSettings:
    """What GTIL (treelite's own predictor) is told: how many threads it may use."""

    def __init__(self, threads: int) -> None:
        self.handle = ctypes.c_void_p()
        text = f'{{"predict_type": "default", "nthread": {threads}}}'.encode()
        _call("TreeliteGTILParseConfig", text, ctypes.byref(self.handle))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            _library().TreeliteGTILDeleteConfig(self.handle)
