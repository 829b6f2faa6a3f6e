"""--backend-config=python,KEY=VALUE."""

from __future__ import annotations

import logging

import pytest

from bident.backends.base import BackendOptions
from bident.backends.python.options import log_ineffective, patience_of
from bident.backends.python.supervisor import Patience
from bident.errors import ConfigError


def options(**own: str) -> BackendOptions:
    return BackendOptions(own={key.replace("_", "-"): value for key, value in own.items()})


def test_the_stub_timeout_is_the_time_to_start() -> None:
    assert patience_of(options()) == Patience()
    assert patience_of(options(stub_timeout_seconds="120")) == Patience(start_seconds=120.0)


@pytest.mark.parametrize("text", ["0", "-1", "", "soon", "inf", "nan"])
def test_a_stub_timeout_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"can't be smaller than or equal to zero: got '{text}'; expected seconds"):
        patience_of(options(stub_timeout_seconds=text))


def test_what_does_nothing_is_said_and_what_nobody_knows_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    given = options(shm_default_byte_size="1", default_max_batch_size="8", stub_timeout_seconds="9", zzz="1")
    with caplog.at_level(logging.INFO, "bident.python"):
        log_ineffective(given)
    said = {record.levelname: record.getMessage() for record in caplog.records}
    assert said.keys() == {"INFO", "WARNING"}
    assert said["INFO"].startswith("--backend-config=python,shm-default-byte-size has no effect: ")
    assert said["WARNING"].startswith("--backend-config=python,zzz is not known and has no effect; known: stub-timeout")
