"""Where models keep what they fetch: libraries' cache folders, moved below the server's."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

CACHE_VARIABLE = "BIDENT_MODEL_CACHE_DIRECTORY"
"""Under this name a model finds the folder itself."""

_LIBRARIES = {
    "HF_HOME": "huggingface",
    "TORCH_HOME": "torch",
    "SENTENCE_TRANSFORMERS_HOME": "sentence-transformers",
}


def cache_variables(directory: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables for a worker, so that weights are fetched into ``directory``, once.

    What the server's own environment ``environ`` says goes before. ``XDG_CACHE_HOME`` is left alone:
    it would move what has nothing to do with models, and hide what the user's tools have put there.
    """
    variables = {CACHE_VARIABLE: str(directory)}
    for name, folder in _LIBRARIES.items():
        if not environ.get(name):
            variables[name] = str(directory / folder)
    if "HF_HOME" in variables and not environ.get("HF_TOKEN_PATH"):
        # The login would move too, and models that need it could not be fetched any more.
        with contextlib.suppress(RuntimeError):  # no home folder, no login
            variables["HF_TOKEN_PATH"] = str(_user_caches(environ) / "huggingface" / "token")
    return variables


def _user_caches(environ: Mapping[str, str]) -> Path:
    """Where huggingface_hub looks when nothing is set, on every platform."""
    return Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
