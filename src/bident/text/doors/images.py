"""Pictures in requests: base64, alone or as a data URI. Nothing is ever fetched for a client."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from bident.errors import invalid_arg
from bident.wire.shown import shown


def decode_image(value: Any, path: str) -> bytes:
    """The bytes of a picture in base64; ``path`` is the field's name. Raises INVALID_ARG."""
    if not isinstance(value, str):
        raise invalid_arg(f"{path} must be a picture in base64, not {shown(value)}")
    encoded = value.partition(",")[2] if value.startswith("data:") else value
    try:
        image = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise invalid_arg(f"{path}: illegal base64 data: {shown(value)}") from None
    if not image:
        raise invalid_arg(f"{path} is an empty picture")
    return image


def decode_image_url(url: str, path: str) -> bytes:
    """The bytes in a data URI. Raises INVALID_ARG for any other address: what it names may be no client's to see."""
    if not url.startswith("data:"):
        raise invalid_arg(
            f"{path}: image URLs are not currently supported, please use base64 encoded data instead, as in "
            f"data:image/png;base64,...; got {shown(url)}"
        )
    if ";base64," not in url[:100]:
        raise invalid_arg(f"{path} must be data:image/<type>;base64,<data>, not {shown(url)}")
    return decode_image(url, path)
