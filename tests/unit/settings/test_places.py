"""Where the user's caches are, on each platform."""

from __future__ import annotations

from pathlib import Path

import pytest

from bident.settings import parse_tensor_args
from bident.settings.places import user_cache_directory

HOME = Path("/home/somebody")


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: HOME)


@pytest.mark.parametrize(
    ("platform", "environ", "expected"),
    [
        ("linux", {}, HOME / ".cache" / "bident"),
        ("linux", {"XDG_CACHE_HOME": "/caches"}, Path("/caches/bident")),
        ("linux", {"XDG_CACHE_HOME": "caches"}, HOME / ".cache" / "bident"),
        ("darwin", {"XDG_CACHE_HOME": "/caches"}, HOME / "Library" / "Caches" / "bident"),
        ("win32", {"LOCALAPPDATA": "/users/me/local"}, Path("/users/me/local/bident/cache")),
        ("win32", {}, HOME / "AppData" / "Local" / "bident" / "cache"),
    ],
)
def test_the_platforms_own_place(platform: str, environ: dict[str, str], expected: Path) -> None:
    assert user_cache_directory(environ, platform) == expected


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_without_a_home_it_is_the_working_directory(
    platform: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    monkeypatch.chdir(tmp_path)
    assert user_cache_directory({}, platform) == tmp_path / ".bident" / "cache"


def test_the_setting_goes_before_and_is_never_missing() -> None:
    assert parse_tensor_args(["--model-cache-directory=/weights"], {}).model_cache_directory == Path("/weights")
    assert parse_tensor_args([], {}).model_cache_directory == user_cache_directory()
