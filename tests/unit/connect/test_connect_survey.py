"""What `bident connect` finds when it asks the servers."""

from __future__ import annotations

from typing import Any

import pytest

from bident.client import Client
from bident.connect.site import survey
from bident.errors import Code, ServeError


class _Tensor(Client):
    """A server that lists two models, and fails with ``code`` when it is asked about the second."""

    def __init__(self, code: Code) -> None:
        super().__init__("http://127.0.0.1:1")
        self._code = code

    def live(self) -> bool:
        return True

    def index(self) -> list[dict[str, Any]]:
        return [{"name": name, "version": "1", "state": "READY"} for name in ("stays", "goes")]

    def metadata(self, model: str, version: str = "") -> dict[str, Any]:
        if model == "goes":
            raise ServeError(self._code, "it is gone")
        return {"name": model}

    def config(self, model: str, version: str = "") -> dict[str, Any]:
        return {"name": model}


def test_a_model_unloaded_since_it_was_listed_is_left_out() -> None:
    assert [model.name for model in survey(_Tensor(Code.NOT_FOUND), None, None).models] == ["stays"]


def test_a_server_that_fails_is_not_taken_for_one_without_models() -> None:
    with pytest.raises(ServeError, match="it is gone"):
        survey(_Tensor(Code.INTERNAL), None, None)
