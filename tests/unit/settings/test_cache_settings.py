"""What ``--cache-config`` may say."""

from __future__ import annotations

import pytest

from bident.errors import SettingsError
from bident.settings.cache import cache_bytes
from bident.settings.parse import parse_tensor_args
from bident.settings.values import Pairs


def test_a_cache_has_a_size_and_none_is_configured_by_default() -> None:
    assert cache_bytes({}) == 0
    assert cache_bytes({"local": {"size": "1048576"}}) == 1048576


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"local": {"size": "0"}}, "valid 'size' field; got local,size=0"),
        ({"local": {"size": "-5"}}, "valid 'size' field"),
        ({"local": {"size": "1M"}}, "valid 'size' field"),
        ({"local": {"size": "٣"}}, "valid 'size' field"),
        ({"local": {"size": "9" * 5000}}, "valid 'size' field"),
        ({"local": {"sizes": "1"}}, "there is no such option; use size=<bytes>"),
        ({"redis": {"host": "x"}}, "unable to find 'redis' for cache"),
        ({"local": {"size": "1"}, "redis": {}}, "found multiple cache configurations"),
    ],
)
def test_what_is_no_cache_is_refused(config: Pairs, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        cache_bytes(config)


def test_a_wrong_cache_is_found_when_the_settings_are_read() -> None:
    with pytest.raises(SettingsError, match="valid 'size' field"):
        parse_tensor_args(["--model-repository=x", "--cache-config=local,size=no"], {})
