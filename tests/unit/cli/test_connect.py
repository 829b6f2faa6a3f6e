"""``bident connect``: which neighbours there are, what is printed and written, and how a check ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bident.connect import registry
from bident.connect.neighbour import File, Hop, Neighbour, Wanted
from bident.connect.site import Site
from bident.errors import Code, ServeError
from tests.unit.cli.conftest import Bident, FakeServer
from tests.unit.cli.fake_ollama import FakeOllama

TRIED: list[str] = []


class Next(Neighbour):
    """A neighbour that tells what it was asked."""

    name = "next"
    summary = "lives [next] door"
    options = {"hop": "which hop does not work", "files": "how many files"}  # noqa: RUF012

    def files(self, site: Site, wanted: Wanted) -> list[File]:
        told = {
            "tensor": site.tensor and site.tensor.theirs,
            "text": site.text and site.text.theirs,
            "models": [model.name for model in site.models],
            "text_models": [(model.name, model.context_length) for model in site.text_models],
            "wanted": list(wanted.models),
        }
        files = [File("first.json", json.dumps(told), "what was asked"), File("sub/second.txt", "two\n", "more")]
        return files[: int(wanted.option("files", "2"))]

    def steps(self, site: Site, wanted: Wanted) -> list[str]:
        return ["knock"]

    def check(self, site: Site, wanted: Wanted) -> Iterator[Hop]:
        for name in ("here -> gate", "gate -> door"):
            TRIED.append(name)
            yield Hop(name, name != wanted.option("hop"), f"saw {name}", "ring the bell")
        if wanted.option("hop") == "raise":
            raise ServeError(Code.UNAVAILABLE, "nobody is in")


@pytest.fixture
def both(server: FakeServer, ollama: FakeOllama, bident: Bident, monkeypatch: pytest.MonkeyPatch) -> Bident:
    """Both servers stand where the command looks, and there is one neighbour more."""
    monkeypatch.setattr("bident.cli.target.DEFAULT_URL", server.url)
    monkeypatch.setattr("bident.cli.text_server.DEFAULT_URL", ollama.url)
    monkeypatch.setitem(registry.NEIGHBOURS, "next", f"{__name__}:Next")
    TRIED.clear()
    return bident


def test_without_a_name_all_are_listed(bident: Bident) -> None:
    shown = bident("connect")
    assert shown.code == 0
    assert all(f" {name} " in shown.out for name in registry.NEIGHBOURS)
    listed = json.loads(bident("connect", "--json").out)
    assert [each["name"] for each in listed] == list(registry.NEIGHBOURS)
    assert "interval" in next(each["options"] for each in listed if each["name"] == "prometheus")


def test_several_files_have_heads(both: Bident) -> None:
    result = both("connect", "next")
    assert result.code == 0
    assert result.out.startswith("# first.json: what was asked\n{")
    assert result.out.endswith("}\n# sub/second.txt: more\ntwo\n")
    assert "1. knock" in result.err


def test_one_file_can_be_piped(both: Bident, server: FakeServer, ollama: FakeOllama) -> None:
    result = both("connect", "next", "--set", "files=1")
    told = json.loads(result.out)
    assert told["models"] == ["iris"]
    assert told["text_models"] == [["smollm2:latest", 8192]]
    assert (told["tensor"], told["text"]) == (server.url, ollama.url)
    assert "# first.json: what was asked" in result.err


def test_the_name_of_this_machine_elsewhere(both: Bident, server: FakeServer) -> None:
    told = json.loads(both("connect", "next", "--set", "files=1", "--host", "host.docker.internal").out)
    assert told["tensor"] == f"http://host.docker.internal:{server.port}"
    assert json.loads(both("connect", "next", "--set", "files=1", "--host", "fe80::1").out)["tensor"] == (
        f"http://[fe80::1]:{server.port}"
    )
    refused = both("connect", "next", "--host", "http://there:1")
    assert refused.code == 1
    assert "a name or an address alone" in refused.err


def test_models_by_the_servers_names(both: Bident) -> None:
    told = json.loads(both("connect", "next", "SMOLLM2", "iris", "smollm2", "--set", "files=1").out)
    assert told["wanted"] == ["smollm2:latest", "iris"]
    unknown = both("connect", "next", "irsi")
    assert unknown.code == 1
    assert "no model 'irsi' is served; did you mean 'iris'? (there is iris, smollm2:latest)" in unknown.err
    assert "did you mean 'smollm2'?" in both("connect", "next", "smollmm").err


def test_models_that_cannot_be_used_are_left_out(both: Bident, ollama: FakeOllama) -> None:
    ollama.faults["broken:latest"] = "no weights"
    ollama.faults["deleted:latest"] = ""  # it is listed, and gone when it is asked about
    told = json.loads(both("connect", "next", "--set", "files=1").out)
    assert [name for name, _ in told["text_models"]] == ["smollm2:latest"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--check"], "which neighbour? as in 'bident connect litellm --check'"),
        (["nxt"], "no neighbour is called 'nxt'; did you mean 'next'?"),
        (["Prometheus"], "did you mean 'prometheus'?"),
        (["next", "--set", "hop"], "it is written NAME=VALUE"),
        (["next", "--set", "hopp=1"], "next has no choice 'hopp'; did you mean 'hop'? (it has hop, files)"),
    ],
)
def test_what_is_misspelt(both: Bident, words: list[str], said: str) -> None:
    result = both("connect", *words)
    assert result.code == 1
    assert said in result.err
    assert result.out == ""


def test_one_server_that_is_down_is_said(both: Bident, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bident.cli.text_server.DEFAULT_URL", "http://127.0.0.1:9")
    result = both("connect", "next", "--set", "files=1")
    assert json.loads(result.out)["text"] is None
    assert "the text server does not answer at http://127.0.0.1:9" in result.err
    monkeypatch.setattr("bident.cli.target.DEFAULT_URL", "http://127.0.0.1:9")
    neither = both("connect", "next")
    assert neither.code == 1
    assert "neither server answers; start them with 'bident up'" in neither.err


def test_only_the_server_that_is_named_is_asked(both: Bident, ollama: FakeOllama, server: FakeServer) -> None:
    told = json.loads(both("connect", "next", "--set", "files=1", "--text-url", ollama.url).out)
    assert (told["tensor"], told["text"]) == (None, ollama.url)
    told = json.loads(both("connect", "next", "--set", "files=1", "--url", server.url).out)
    assert (told["tensor"], told["text"]) == (server.url, None)


def test_writing(both: Bident, tmp_path: Path) -> None:
    written = both("connect", "next", "--write", tmp_path / "out")
    assert written.code == 0
    assert written.out == ""
    assert "first.json: written" in written.err
    assert (tmp_path / "out" / "sub" / "second.txt").read_text(encoding="utf-8") == "two\n"
    again = both("connect", "next", "--write", tmp_path / "out")
    assert "second.txt: is as it should be" in again.err
    (tmp_path / "out" / "sub" / "second.txt").write_text("mine", encoding="utf-8")
    (tmp_path / "out" / "first.json").unlink()
    refused = both("connect", "next", "--write", tmp_path / "out")
    assert refused.code == 1
    assert "second.txt: there already with other contents; --force" in refused.err
    assert not (tmp_path / "out" / "first.json").exists()
    assert both("connect", "next", "--write", tmp_path / "out", "--force").code == 0
    assert (tmp_path / "out" / "sub" / "second.txt").read_text(encoding="utf-8") == "two\n"
    assert sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file()) == ["first.json", "second.txt"]


def test_as_json(both: Bident) -> None:
    told = json.loads(both("connect", "next", "--json").out)
    assert [file["path"] for file in told["files"]] == ["first.json", "sub/second.txt"]
    assert told["steps"] == ["knock"]


def test_a_check_that_works(both: Bident) -> None:
    result = both("connect", "next", "--check")
    assert result.code == 0
    assert [line.split()[0] for line in result.out.splitlines()] == ["ok", "ok"]
    assert "ring the bell" not in result.out
    assert json.loads(both("connect", "next", "--check", "--json").out)["works"] is True


def test_a_check_ends_at_the_first_failure(both: Bident) -> None:
    result = both("connect", "next", "--check", "--set", "hop=here -> gate")
    assert result.code == 1
    assert result.out.startswith("fail here -> gate")
    assert "cure: ring the bell" in result.out
    assert TRIED == ["here -> gate"]
    told = json.loads(both("connect", "next", "--check", "--json", "--set", "hop=here -> gate").out)
    assert (told["works"], [hop["name"] for hop in told["hops"]]) == (False, ["here -> gate"])


def test_a_check_that_cannot_be_made(both: Bident) -> None:
    result = both("connect", "next", "--check", "--set", "hop=raise")
    assert result.code == 1
    assert "bident: nobody is in" in result.err
