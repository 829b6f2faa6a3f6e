"""``--backend-config=python,KEY=VALUE``: Triton's keys, and what they mean here."""

from __future__ import annotations

import difflib
import logging

from bident.backends.base import BackendOptions
from bident.backends.python.supervisor import Patience
from bident.errors import ConfigError

logger = logging.getLogger("bident.python")

STUB_TIMEOUT = "stub-timeout-seconds"
_WITHOUT_EFFECT = {
    "shm-default-byte-size": "shared memory is taken as tensors need it",
    "shm-growth-byte-size": "shared memory is taken as tensors need it",
    "shm-region-prefix-name": "shared memory has no names",
    "shm_message_queue_size": "workers are spoken to over sockets",
    "thread-pool-size": "models ask other models without using up threads",
}
_KNOWN = (STUB_TIMEOUT, "default-max-batch-size", *_WITHOUT_EFFECT)


def patience_of(options: BackendOptions) -> Patience:
    """How long to wait for workers: ``stub-timeout-seconds`` is for ``initialize`` and ``auto_complete_config``.

    Raises ConfigError for one that is no positive number, as Triton does.
    """
    text = options.own.get(STUB_TIMEOUT)
    if text is None:
        return Patience()
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ConfigError(
            f"{STUB_TIMEOUT} can't be smaller than or equal to zero: got '{text}'; "
            f"expected seconds, as in --backend-config=python,{STUB_TIMEOUT}=600"
        )
    return Patience(start_seconds=seconds)


def log_ineffective(options: BackendOptions) -> None:
    """Say which of the keys given do nothing here, and warn of those that nobody knows."""
    for key in options.own:
        if key in _WITHOUT_EFFECT:
            logger.info("--backend-config=python,%s has no effect: %s", key, _WITHOUT_EFFECT[key])
        elif key not in _KNOWN:
            near = difflib.get_close_matches(key, _KNOWN, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(_KNOWN)}"
            logger.warning("--backend-config=python,%s is not known and has no effect; %s", key, hint)
