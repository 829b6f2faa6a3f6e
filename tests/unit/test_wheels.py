"""Unpacking wheels: what the installer says on the way, and how it is ended."""

from __future__ import annotations

import sys

import pytest

from bident import wheels
from bident.errors import Code, ServeError


def installer(monkeypatch, program: str) -> None:
    monkeypatch.setattr(wheels, "_installer", lambda: [sys.executable, "-c", program])


def test_progress_is_passed_on(tmp_path, monkeypatch):
    installer(monkeypatch, "print('Collecting x'); print('Progress 5 of 10'); print('Progress 10 of 10')")
    seen = []
    wheels.unpack_wheels(["x==1"], tmp_path, lambda *step: seen.append(step))
    assert seen == [(5, 10), (10, 10)]


def test_the_last_words_are_the_reason(tmp_path, monkeypatch):
    installer(monkeypatch, "import sys; print('Collecting x'); print('ERROR: no such x', file=sys.stderr); sys.exit(1)")
    with pytest.raises(ServeError, match=r"cannot fetch x==1 from the package index: ERROR: no such x") as caught:
        wheels.unpack_wheels(["x==1"], tmp_path)
    assert caught.value.code is Code.UNAVAILABLE


def test_it_ends_when_it_is_no_longer_wanted(tmp_path, monkeypatch):
    installer(monkeypatch, "import time; print('Progress 1 of 2', flush=True); time.sleep(60)")

    def unwanted(completed, total):
        raise ServeError(Code.CANCELLED, "cancelled")

    with pytest.raises(ServeError, match="cancelled"):
        wheels.unpack_wheels(["x==1"], tmp_path, unwanted)
