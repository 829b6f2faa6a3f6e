"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path, content: bytes) -> Iterator[Path]:
    """``content`` in a draft beside ``path``, which takes its place where the block ends well; nobody reads half of it.

    The draft is readable by its owner alone. Raises OSError, and then ``path`` is as it was.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
        yield draft
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
