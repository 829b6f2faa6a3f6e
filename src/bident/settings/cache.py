"""What ``--cache-config`` says about the response cache."""

from __future__ import annotations

from bident.errors import SettingsError
from bident.settings.values import Pairs

_LOCAL = "local"
_SIZE = "size"
_MOST_DIGITS = 19


def cache_bytes(config: Pairs) -> int:
    """How many bytes of answers are kept; 0 if no cache is configured. Raises SettingsError, in Triton's words."""
    if not config:
        return 0
    if len(config) > 1:
        raise SettingsError(
            "found multiple cache configurations, but only a single cache is currently supported; "
            f"--cache-config names {' and '.join(sorted(config))}: keep one"
        )
    ((name, options),) = config.items()
    if name != _LOCAL:
        raise SettingsError(
            f"--cache-config: unable to find '{name}' for cache; Bident has one cache: {_LOCAL},{_SIZE}=<bytes>"
        )
    if unknown := sorted(options.keys() - {_SIZE}):
        raise SettingsError(f"--cache-config {_LOCAL},{unknown[0]}: there is no such option; use {_SIZE}=<bytes>")
    size = options[_SIZE]
    if not (size.isascii() and size.isdigit() and len(size) < _MOST_DIGITS and int(size)):
        raise SettingsError(
            "Failed to initialize LocalCache: config didn't contain a valid 'size' field; "
            f"got {_LOCAL},{_SIZE}={size}, expected a number of bytes above 0"
        )
    return int(size)
