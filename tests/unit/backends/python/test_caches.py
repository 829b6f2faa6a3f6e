"""The variables that send libraries' downloads to the server's cache folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from bident.backends.python.caches import cache_variables

CACHE = Path("/cache")
HOME = Path("~").expanduser()


def test_libraries_keep_theirs_below_the_servers() -> None:
    assert cache_variables(CACHE, {}) == {
        "BIDENT_MODEL_CACHE_DIRECTORY": str(CACHE),
        "HF_HOME": str(CACHE / "huggingface"),
        "TORCH_HOME": str(CACHE / "torch"),
        "SENTENCE_TRANSFORMERS_HOME": str(CACHE / "sentence-transformers"),
        "HF_TOKEN_PATH": str(HOME / ".cache" / "huggingface" / "token"),
    }


@pytest.mark.parametrize("name", ["HF_HOME", "TORCH_HOME", "SENTENCE_TRANSFORMERS_HOME"])
def test_what_the_servers_environment_says_goes_before(name: str) -> None:
    assert name not in cache_variables(CACHE, {name: "/mine"})
    assert name in cache_variables(CACHE, {name: ""})


def test_a_login_stays_where_it_is() -> None:
    assert "HF_TOKEN_PATH" not in cache_variables(CACHE, {"HF_HOME": "/mine"})
    assert "HF_TOKEN_PATH" not in cache_variables(CACHE, {"HF_TOKEN_PATH": "/secret"})
    assert cache_variables(CACHE, {"XDG_CACHE_HOME": "/caches"})["HF_TOKEN_PATH"] == str(
        Path("/caches/huggingface/token")
    )


def test_without_a_home_there_is_no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", nowhere)
    found = cache_variables(CACHE, {})
    assert "HF_TOKEN_PATH" not in found
    assert found["HF_HOME"] == str(CACHE / "huggingface")
