"""What is missing is said before anything is measured."""

import importlib

import pytest

from benchmarks import run, wrk
from benchmarks.peers import triton


def test_missing_tools_are_named_with_their_cure(monkeypatch, capsys):
    monkeypatch.setattr(wrk, "installed", lambda: False)
    monkeypatch.setattr(triton, "installed", lambda: False)
    assert run.main(["http"]) == 2
    said = capsys.readouterr().out
    assert "apt-get install wrk" in said
    assert "make triton" in said


def test_only_what_the_chosen_benchmarks_need_is_asked_for(monkeypatch):
    monkeypatch.setattr(wrk, "installed", lambda: True)
    monkeypatch.setattr(triton, "installed", lambda: False)
    assert run.missing(["scale", "start"]) == []


def test_an_unknown_benchmark_is_refused_with_the_names_there_are(capsys):
    with pytest.raises(SystemExit):
        run.main(["htpp"])
    assert "no benchmark htpp; there are http, grpc, " in capsys.readouterr().err


@pytest.mark.parametrize("name", run.NAMES)
def test_every_name_is_a_benchmark(name):
    benchmark = importlib.import_module(f"benchmarks.{name}_bench")
    assert benchmark.TITLE
    assert callable(benchmark.run)
