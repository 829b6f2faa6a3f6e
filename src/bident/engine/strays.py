"""Outputs that a model gives and does not declare, or declares and does not give: said once, in the log.

Clients hear nothing of them unless they ask for one by name: an answer has what it has, as Triton's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from bident.model.config import ModelConfig
from bident.model.hints import did_you_mean
from bident.wire.infer import Column, InferRequest

logger = logging.getLogger("bident.engine")

_MOST = 100
"""As many names are told of; a model that makes up a new one each time must not fill log and memory."""


class Strays:
    """Those of one model version."""

    def __init__(self, config: ModelConfig) -> None:
        self._name = config.name
        self._outputs = list(config.outputs)
        self._decoupled = config.decoupled
        self._told: set[str] = set()

    def look(self, columns: Sequence[Column], undeclared: Sequence[str], requests: Sequence[InferRequest]) -> None:
        """See what is wrong with an answer of ``columns`` that dropped the ``undeclared``, to ``requests``."""
        given = {column.name for column in columns}
        missing = [name for name in self._outputs if name not in given]
        for name in undeclared:
            if self._is_new(name):
                hint = did_you_mean(name, missing) or "the model declares no other"
                logger.warning(
                    "model '%s' gave output '%s', which its config does not declare; %s It is dropped",
                    self._name,
                    name,
                    hint if hint.endswith("?") else f"{hint}.",
                )
        # A stream may give some outputs now and others later; who names outputs gets no others.
        if not missing or self._decoupled or all(request.outputs is not None for request in requests):
            return
        for name in missing:
            if self._is_new(name):
                logger.warning(
                    "model '%s' gave no output '%s', which its config declares: answers come without it",
                    self._name,
                    name,
                )

    def _is_new(self, name: str) -> bool:
        if name in self._told or len(self._told) >= _MOST:
            return False
        self._told.add(name)
        return True
