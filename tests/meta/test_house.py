"""The habits that tools do not check: sizes, names, what an import may cost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "bident"
FORBIDDEN = ("util", "helper", "common", "misc", "manager", "handler", "processor", "wrapper")
FIXED_BY_TRITON = ("triton_python_backend_utils",)
MAX_LINES = 400


def test_files_stay_readable() -> None:
    long = {
        str(path.relative_to(SOURCE)): lines
        for path in SOURCE.rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES
    }
    assert not long, "split by noun"


def test_names_say_what_is_inside() -> None:
    named = [
        path
        for path in SOURCE.rglob("*.py")
        if path.stem not in FIXED_BY_TRITON and any(word in path.stem for word in FORBIDDEN)
    ]
    assert not named


def test_importing_bident_is_cheap() -> None:
    """The package itself, and the command line's front page, load no numpy and no model library."""
    heavy = ("numpy", "onnx", "onnxruntime", "treelite", "xgboost", "sklearn", "grpc", "httpx")
    code = f"import bident, bident.cli, sys; print([name for name in {heavy!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert loaded.strip() == "[]"


def test_serving_does_not_import_what_no_model_needs() -> None:
    heavy = ("onnxruntime", "treelite", "xgboost", "grpc", "typer", "rich")
    code = f"import bident.app, sys; print([name for name in {heavy!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert loaded.strip() == "[]"
