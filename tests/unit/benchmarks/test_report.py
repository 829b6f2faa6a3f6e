"""Results are kept between runs, and published between the document's two markers only."""

import pytest

from benchmarks import report
from benchmarks.table import Bar, compared, measured

ROWS = [
    compared("throughput", "req/s", Bar(at_least=0.6), [41781, 40000], "bare loop", [50000, 51000]),
    measured("start", "s", Bar(at_most=1.5), [0.8]),
]


def test_saved_sections_are_loaded_as_they_were(tmp_path):
    sections = {"http": report.Section.of_now("iris", ROWS)}
    report.save(sections, tmp_path / "results.json")
    assert report.load(tmp_path / "results.json") == sections


def test_no_results_yet(tmp_path):
    assert report.load(tmp_path / "results.json") == {}


def test_publishing_twice_replaces_the_tables_and_nothing_else(tmp_path):
    document = tmp_path / "benchmarks.md"
    document.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    sections = {"http": report.Section("iris", ROWS, "some day, some machine")}
    report.publish(sections, document)
    once = document.read_text()
    report.publish(sections, document)
    assert document.read_text() == once
    assert "old" not in once
    assert once.startswith("before\n")
    assert once.endswith(f"{report.END}\nafter\n")
    assert "### iris\n\nsome day, some machine\n\n| what |" in once


def test_a_document_without_markers_is_left_alone(tmp_path):
    document = tmp_path / "benchmarks.md"
    document.write_text("no markers")
    with pytest.raises(ValueError, match="benchmarks: begin"):
        report.publish({}, document)
    assert document.read_text() == "no markers"


def test_the_real_document_has_the_markers():
    text = report.DOCUMENT.read_text(encoding="utf-8")
    assert text.index(report.BEGIN) < text.index(report.END)
