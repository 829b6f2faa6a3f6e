"""API keys: who is let in, and what happens to the file meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bident.doors import api_keys
from bident.doors.api_keys import ApiKeys
from bident.errors import SettingsError

KEY = "a-key-that-is-long-enough"
OTHER = "another-key-that-is-long"


class Time:
    """The clock that the keys look at."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def pass_a_second(self) -> None:
        self.now += 1.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Time]:
    made = Time()
    monkeypatch.setattr(api_keys, "time", made)
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    write(path, KEY)
    return path


def write(path: Path, *lines: str) -> None:
    """Replace the file as an editor would: what the file system says of it differs every time."""
    fresh = path.with_suffix(".new")
    fresh.write_text("\n".join(lines) + "\n")
    fresh.chmod(0o600)
    fresh.replace(path)


def bearer(key: str, scheme: str = "Bearer") -> dict[bytes, bytes]:
    return {b"authorization": f"{scheme} {key}".encode()}


def test_a_key_is_shown_in_either_header(file: Path) -> None:
    keys = ApiKeys(str(file))
    assert keys.allows(bearer(KEY))
    assert keys.allows(bearer(KEY, "bearer"))
    assert keys.allows({b"x-api-key": KEY.encode()})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(KEY[:-1]),
        bearer(KEY + "x"),
        bearer(""),
        bearer(KEY, "Basic"),
        bearer("# a comment"),
        {b"authorization": KEY.encode()},
        {b"authorization": b"Bearer"},
        {b"x-api-key": b""},
        {b"x-api-key": b"\xff\x00" * 40_000},
        {b"x-api-key": b"wrong", **bearer(KEY)},
    ],
)
def test_everybody_else_is_not_let_in(file: Path, headers: dict[bytes, bytes]) -> None:
    assert not ApiKeys(str(file)).allows(headers)


def test_comments_and_empty_lines_are_no_keys_and_spaces_around_one_do_not_count(file: Path) -> None:
    write(file, "# for the gateway", "", f"  {KEY}\t", OTHER)
    keys = ApiKeys(str(file))
    assert keys.allows(bearer(KEY))
    assert keys.allows(bearer(OTHER))
    assert not keys.allows(bearer(""))


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "it holds no key"),
        (["# nobody"], "it holds no key"),
        (["two words"], "line 1 is no key"),
        (["", "caf\u00e9-caf\u00e9-caf\u00e9-caf\u00e9"], "line 2 is no key"),
        (["k" * (1 << 20)], "is larger than 1048576 bytes"),
    ],
)
def test_a_file_without_usable_keys_is_refused(file: Path, lines: list[str], says: str) -> None:
    write(file, *lines)
    with pytest.raises(SettingsError) as caught:
        ApiKeys(str(file))
    assert says in caught.value.message
    assert f"--api-key-file={file}" in caught.value.message


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(SettingsError, match="No such file"):
        ApiKeys("/nowhere/keys")


def test_a_changed_file_counts_within_a_second(file: Path, clock: Time) -> None:
    keys = ApiKeys(str(file))
    write(file, OTHER)
    assert keys.allows(bearer(KEY))
    clock.pass_a_second()
    assert not keys.allows(bearer(KEY))
    assert keys.allows(bearer(OTHER))


def test_a_mistake_in_the_file_keeps_the_keys_before_and_is_said_once(
    file: Path, clock: Time, caplog: pytest.LogCaptureFixture
) -> None:
    keys = ApiKeys(str(file))
    for break_it in (file.unlink, lambda: write(file, "# all gone"), lambda: write(file, "not a key")):
        caplog.clear()
        break_it()
        for _ in range(3):
            clock.pass_a_second()
            assert keys.allows(bearer(KEY))
            assert not keys.allows(bearer(OTHER))
        (record,) = caplog.records
        assert "the keys before stay valid" in record.getMessage()
    write(file, OTHER)
    clock.pass_a_second()
    assert keys.allows(bearer(OTHER))


def test_no_key_is_ever_logged(file: Path, clock: Time, caplog: pytest.LogCaptureFixture) -> None:
    keys = ApiKeys(str(file))
    write(file, OTHER, "shrt")
    clock.pass_a_second()
    keys.allows(bearer("guess-guess-guess-guess"))
    assert "can be guessed" in caplog.text
    for word in (KEY, OTHER, "shrt", "guess-"):
        assert word not in caplog.text


def test_a_file_that_everybody_can_read_is_warned_of(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    if os.name == "posix":
        file.chmod(0o644)
        ApiKeys(str(file))
        assert "every user of this machine can read it" in caplog.text
    caplog.clear()
    file.chmod(0o600)
    ApiKeys(str(file))
    assert not caplog.records
