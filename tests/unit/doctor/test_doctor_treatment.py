"""How files are changed: nothing is lost, nothing is half done, comments stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bident.doctor import treatment
from bident.doctor.models.config_edit import Step, edit, parameter, set_parameter
from bident.doctor.models.config_text import read_block
from bident.doctor.release import Release, read_target
from bident.errors import ServeError
from bident.model import pbtxt

TEXT = """# A model.
name: "m"; backend: 'fil'  # trees
input [ { name: "x", data_type: TYPE_FP32, dims: [ 3 ] } ]
output <
  name: "a" "b"  # two strings are one
  dims: [ -1 ]
>
output { name: "second" }
parameters: { key: "k" value { string_value: "}" } }
"""


def edited(tmp_path: Path, text: str, *steps: Step) -> str:
    path = tmp_path / "config.pbtxt"
    path.write_text(text)
    edit(path, steps)
    return path.read_text()


@pytest.mark.parametrize(
    ("step", "old", "new"),
    [
        (Step("backend", '"onnxruntime"'), "backend: 'fil'", 'backend: "onnxruntime"'),
        (Step("max_batch_size", "8"), '"}" } }\n', '"}" } }\nmax_batch_size: 8\n'),
        (Step("dims", "[4, 5]", (("input", 0),)), "dims: [ 3 ]", "dims: [4, 5]"),
        (Step("name", '"c"', (("output", 0),)), 'name: "a" "b"', 'name: "c"'),
        (
            Step("reshape", "{ shape: [ ] }", (("output", 0),)),
            "dims: [ -1 ]\n",
            "dims: [ -1 ]\n  reshape { shape: [ ] }\n",
        ),
        (Step("dims", "[1]", (("output", 1),)), 'name: "second" ', 'name: "second" dims: [1] '),
        (Step("data_type", "", (("input", 0),)), " data_type: TYPE_FP32,", " "),
        (Step("output", ""), TEXT[TEXT.index("output <") : TEXT.index("parameters")], "\n\n"),
        (parameter("j", "v"), '"}" } }\n', '"}" } }\nparameters { key: "j" value: { string_value: "v" } }\n'),
    ],
)
def test_a_change_leaves_the_rest_as_it_was(tmp_path: Path, step: Step, old: str, new: str) -> None:
    assert old in TEXT
    assert edited(tmp_path, TEXT, step) == TEXT.replace(old, new)


def test_a_parameter_gets_another_value(tmp_path: Path) -> None:
    config = pbtxt.parse(TEXT.encode(), "")
    text = edited(tmp_path, TEXT, set_parameter(config, "k", 'new "value"'), parameter("z", "1"))
    read = pbtxt.parse(text.encode(), "")
    assert {key: value.string_value for key, value in read.parameters.items()} == {"k": 'new "value"', "z": "1"}
    assert "# A model." in text


def test_a_file_that_is_not_there_is_made(tmp_path: Path) -> None:
    edit(tmp_path / "config.pbtxt", [Step("backend", '"fil"')])
    assert (tmp_path / "config.pbtxt").read_text() == 'backend: "fil"\n'
    assert list(tmp_path.iterdir()) == [tmp_path / "config.pbtxt"]


def test_a_layout_beyond_us_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> str:
        raise ValueError

    monkeypatch.setattr("bident.doctor.models.config_text.put", fail)
    text = edited(tmp_path, TEXT, Step("backend", '"onnxruntime"'))
    assert pbtxt.parse(text.encode(), "").backend == "onnxruntime"


def test_what_is_replaced_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"one", b"two", b"three"):
        treatment.replace_file(path, content)
    assert path.read_bytes() == b"three"
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {
        "file": b"three",
        "file.bak": b"one",
        "file.bak1": b"two",
    }


def test_a_read_only_library_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "library" / "file"
    path.parent.mkdir()
    path.write_bytes(b"one")
    path.parent.chmod(0o555)
    try:
        for change in (
            lambda: treatment.replace_file(path, b"two"),
            lambda: treatment.move(path, tmp_path / "library" / "other"),
            lambda: treatment.put_away(path),
            lambda: treatment.make_folder(path.parent / "1"),
        ):
            with pytest.raises(ServeError, match="read-only"):
                change()
        assert [entry.name for entry in path.parent.iterdir()] == ["file"]
    finally:
        path.parent.chmod(0o755)


def test_nothing_is_moved_over_something(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    with pytest.raises(ServeError, match="exists"):
        treatment.move(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "b"


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="{}[]<>:,;\"'#\\\n ab-1", max_size=60))
def test_any_text_has_a_layout_or_none(text: str) -> None:
    try:
        read_block(text)
    except (ValueError, RecursionError):
        return


def test_targets() -> None:
    assert read_target("") is None
    assert read_target("bident") is None
    assert read_target("triton:25.05") == Release(25, 5)
    for text in ("triton", "triton:25.13", "triton:2.60", "triton:21.04", "ollama:1"):
        with pytest.raises(ServeError, match="triton:"):
            read_target(text)


def test_what_releases_have_inside() -> None:
    release = Release(25, 5)
    assert (release.runtime, release.onnx, release.python, release.treelite) == ((1, 22), (10, 22), (3, 12), 4)
    assert (release.xgboost, release.reads_ubjson, release.knows_is_classifier) == ((3, 0), True, False)
    old = Release(23, 1)
    assert (old.runtime, old.onnx, old.python, old.treelite, old.xgboost) == (None, None, None, 3, (1, 6))
