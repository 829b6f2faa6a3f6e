"""XGBoost's C library, called directly: the fastest way there is to run many rows through trees.

Importing the ``xgboost`` package costs 2 s and 70 MB, and its ``inplace_predict`` 150 us per call on top
of the prediction; its C API costs neither. The library is optional (``pip install 'bident[xgboost]'``).
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bident.backends.fil.treelite_library import shared_library
from bident.errors import Code, ServeError

_MARGINS = (
    b'{"type":1,"training":false,"iteration_begin":0,"iteration_end":0,"strict_shape":false,"cache_id":0,"missing":NaN}'
)


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    library = shared_library("xgboost", "xgboost")
    library.XGBGetLastError.restype = ctypes.c_char_p
    library.XGBoosterPredictFromDense.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    return library


def _call(function: str, *arguments: Any) -> None:
    library = _library()
    if getattr(library, function)(*arguments) != 0:
        text: str = library.XGBGetLastError().decode("utf-8", "replace")
        raise ServeError(Code.INTERNAL, f"xgboost: {text.splitlines()[0]}")


class XgboostBooster:
    """A model in XGBoost's memory. One object serves one thread at a time."""

    def __init__(self, model: bytes, threads: int) -> None:
        """Read ``model`` (XGBoost's JSON or UBJSON).

        Raises ImportError when XGBoost is not installed, ServeError when it refuses the model.
        """
        self._booster = ctypes.c_void_p()
        self._proxy = ctypes.c_void_p()
        # Thread-local in XGBoost: its advice about old files would go to stderr.
        _call("XGBSetGlobalConfig", b'{"verbosity": 0}')
        try:
            _call("XGBoosterCreate", None, ctypes.c_uint64(0), ctypes.byref(self._booster))
            _call("XGBoosterLoadModelFromBuffer", self._booster, model, ctypes.c_uint64(len(model)))
            _call("XGBoosterSetParam", self._booster, b"nthread", str(threads).encode())
            _call("XGProxyDMatrixCreate", ctypes.byref(self._proxy))
        finally:
            _call("XGBSetGlobalConfig", b'{"verbosity": 1}')

    def __del__(self) -> None:
        if getattr(self, "_proxy", None):
            _library().XGDMatrixFree(self._proxy)
        if getattr(self, "_booster", None):
            _library().XGBoosterFree(self._booster)

    def margins(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Raw scores [N, classes] of ``rows`` [N, features], C-contiguous, aligned, N >= 1."""
        count, width = rows.shape
        source = b'{"data":[%d,true],"shape":[%d,%d],"strides":null,"typestr":"<f4","version":3}'
        shape = ctypes.POINTER(ctypes.c_uint64)()
        dimensions = ctypes.c_uint64()
        scores = ctypes.POINTER(ctypes.c_float)()
        _call(
            "XGBoosterPredictFromDense",
            self._booster,
            source % (rows.ctypes.data, count, width),
            _MARGINS,
            self._proxy,
            ctypes.byref(shape),
            ctypes.byref(dimensions),
            ctypes.byref(scores),
        )
        total = 1
        for axis in range(dimensions.value):
            total *= shape[axis]
        # The buffer belongs to XGBoost and lasts until this thread's next call: copy.
        return np.ctypeslib.as_array(scores, (total,)).reshape(count, -1).copy()
