"""What ``metric_tags`` are called on the metrics page."""

from __future__ import annotations

import re

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")


def label_of(key: str) -> str:
    """The label of the tag ``key``: after an underscore, with one for each character no label can have.

    Such a character would cost the scraper the whole page.
    """
    return f"_{_NOT_IN_NAMES.sub('_', key)}"
