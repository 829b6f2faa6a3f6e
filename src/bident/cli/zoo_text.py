"""The text engine's part of ``bident zoo``."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bident.cli.serve import config_file
from bident.client import TextClient
from bident.errors import ServeError
from bident.settings import parse_text_args
from bident.zoo.recipe import Report
from bident.zoo.text_samples import BACKEND, TextSample


def store() -> Path:
    """Where text models are kept, by this environment and this folder's ``bident.toml``. Raises SettingsError."""
    from bident.text.store.library import DEFAULT_ROOT

    return parse_text_args(["--insecure"], os.environ, config_file()).models or DEFAULT_ROOT


def build(sample: TextSample, report: Report, force: bool) -> str:
    """Fetch ``sample`` and say in a few words what that came to. Raises ServeError and OSError."""
    fresh = sample.build(store(), report, force=force)
    return f"{'built' if fresh else 'was there already'}, real weights"


def row(sample: TextSample) -> dict[str, object]:
    """The line of ``bident zoo list``."""
    return {
        "model": sample.name,
        "backend": BACKEND,
        "what": sample.summary,
        "weights": "real",
        "built": sample.built(store()),
    }


def ask(client: TextClient, sample: TextSample) -> tuple[str, float | None, bool]:
    """The answer in a few words, what it took in ms, and whether it is right; or the cause."""
    try:
        # Twice: the first time a model is asked it loads, which says nothing about how fast it answers.
        client.call("POST", sample.path, {**sample.body, "model": sample.name, "stream": False})
        began = time.perf_counter()
        answer = client.call("POST", sample.path, {**sample.body, "model": sample.name, "stream": False})
        latency_ms = round((time.perf_counter() - began) * 1e3, 2)
        return sample.check(answer), latency_ms, True
    except ServeError as error:
        return error.message, None, False
    except (KeyError, TypeError, ValueError):
        return f"{client.url} answered something that is not {client.protocol}", None, False
