"""Finding backends by name, and saying what is wrong with one."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from bident.backends import discovery
from bident.backends.discovery import GROUP, Backends
from bident.backends.identity import IdentityBackend
from bident.errors import Code, ConfigError
from bident.settings.places import user_cache_directory


def installed(monkeypatch: pytest.MonkeyPatch, **places: str) -> None:
    points = [EntryPoint(name, place, GROUP) for name, place in places.items()]
    monkeypatch.setattr(discovery, "entry_points", lambda group: points if group == GROUP else [])


def module(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> str:
    """An importable module with this text; returns its name."""
    name = f"backend_of_{folder.name}".replace("-", "_")
    (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_our_own_backends_are_found_the_way_of_all_others() -> None:
    backends = Backends()

    assert {"onnxruntime", "fil", "identity"} <= set(backends.names())
    assert backends.names() == sorted(backends.names())
    assert isinstance(backends.get("identity"), IdentityBackend)


def test_a_backend_is_built_once_and_only_when_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, identity="bident.backends.identity:IdentityBackend", missing="no.such.module:Backend")
    backends = Backends()

    assert backends.names() == ["identity", "missing"]
    assert backends.get("identity") is backends.get("identity")


def test_each_backend_gets_its_own_settings_and_the_common_ones() -> None:
    options = {"identity": {"a": "1"}, "fil": {"b": "2"}, "": {"default-max-batch-size": "16"}}

    backend = Backends(options).get("identity")

    assert backend.options.own == {"a": "1"}
    assert backend.options.default_max_batch_size == 16
    assert Backends().get("identity").options.default_max_batch_size == 4


def test_each_backend_is_told_where_to_keep_things(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Backends({}, Path("kept")).get("identity").options.cache_directory == tmp_path / "kept"
    assert Backends().get("identity").options.cache_directory == user_cache_directory()


def test_models_of_one_kind_that_load_at_once_share_one_backend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = """
import threading
from bident.backends.identity import IdentityBackend
made = []
class Slow(IdentityBackend):
    def __init__(self, options):
        super().__init__(options)
        made.append(self)
        threading.Event().wait(0.02)
"""
    installed(monkeypatch, slow=f"{module(monkeypatch, tmp_path, text)}:Slow")
    backends = Backends()
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(backends.get, ["slow"] * 4))) == 1


def test_what_models_measure_themselves_comes_from_every_backend_that_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = """
from bident.backends.identity import IdentityBackend
class Measuring(IdentityBackend):
    def metrics(self):
        return ["a 1\\n", "b 2\\n"]
"""
    installed(
        monkeypatch,
        measuring=f"{module(monkeypatch, tmp_path, text)}:Measuring",
        identity="bident.backends.identity:IdentityBackend",
    )
    backends = Backends()
    assert list(backends.metrics()) == []
    backends.get("identity"), backends.get("measuring")
    assert list(backends.metrics()) == ["a 1\n", "b 2\n"]


@pytest.mark.parametrize(("name", "hint"), [("onnxruntim", "did you mean 'onnxruntime'?"), ("zzz", "installed: ")])
def test_an_unknown_backend_is_refused_with_the_ones_there_are(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Backends().get(name)

    assert caught.value.code is Code.INVALID_ARG
    assert f"unable to find backend library for backend '{name}'" in caught.value.message
    assert hint in caught.value.message
    assert "fil, identity, onnxruntime" in caught.value.message


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("import no_such_package", "No module named 'no_such_package'"),
        ("raise OSError('libgomp.so.1: cannot open shared object file')", "libgomp.so.1"),
        ("Backend = 1 +", "invalid syntax"),
        ("", "Backend"),
    ],
    ids=["package", "library", "syntax", "class"],
)
def test_a_backend_that_cannot_be_imported_says_why_and_the_others_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, cause: str
) -> None:
    name = module(monkeypatch, tmp_path, text)
    installed(monkeypatch, good="bident.backends.identity:IdentityBackend", bad=f"{name}:Backend")
    backends = Backends()

    with pytest.raises(ConfigError) as caught:
        backends.get("bad")

    assert caught.value.message.startswith("backend 'bad' cannot be imported: ")
    assert cause in caught.value.message
    assert backends.names() == ["bad", "good"]
    assert isinstance(backends.get("good"), IdentityBackend)
