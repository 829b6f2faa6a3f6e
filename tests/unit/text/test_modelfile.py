"""Modelfiles: reading what people write, and writing what reads back."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bident.errors import Code, ServeError
from bident.text.modelfile import Modelfile, parse_modelfile, shown_parameters, write_modelfile
from bident.wire.text import Message

EVERYTHING = '''
# a comment
FROM ./some model.gguf
from ./mmproj.gguf
parameter temperature 0.7
PARAMETER stop "<|im_end|>"
PARAMETER\tstop   </s>
PARAMETER num_ctx 4096
PARAMETER use_mmap false
PARAMETER mirostat 1
  SYSTEM """You are
# no comment
a "pirate"."""
TEMPLATE """{{ if .System }}{{ .System }}
{{ end }}{{ .Prompt }}"""
ADAPTER ./lora.gguf
MESSAGE user Ahoy there
MESSAGE assistant """Aye,
aye"""
LICENSE "MIT"
LICENSE """Apache
2.0"""
REQUIRES 0.14.0
'''


def test_everything_there_is():
    assert parse_modelfile(EVERYTHING) == Modelfile(
        base="./some model.gguf",
        also=["./mmproj.gguf"],
        parameters={"temperature": 0.7, "stop": ["<|im_end|>", "</s>"], "num_ctx": 4096, "use_mmap": False},
        template="{{ if .System }}{{ .System }}\n{{ end }}{{ .Prompt }}",
        system='You are\n# no comment\na "pirate".',
        adapters=["./lora.gguf"],
        licenses=["MIT", "Apache\n2.0"],
        messages=[Message("user", "Ahoy there"), Message("assistant", "Aye,\naye")],
        requires="0.14.0",
    )


def test_line_ends_of_windows_and_a_byte_order_mark():
    assert parse_modelfile("\ufeffFROM a\r\nSYSTEM b\r\n") == Modelfile(base="a", system="b")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no FROM line"),
        ("# FROM a", "no FROM line"),
        ("FROM", "line 1: FROM has no value"),
        ("FROM a\nFRMO b", "line 2: command must be one of"),
        ("FROM a\n=b", "line 2: '=b' is no command"),
        ("FROM a\nPARAMETER temperature", "line 2: PARAMETER temperature has no value"),
        ("FROM a\nMESSAGE robot hi", "line 2: message role must be one of"),
        ('FROM a\nSYSTEM """never\nended', 'line 2: the """ is never closed'),
        ('FROM a\nSYSTEM """b""" c', "line 2: a value that starts with"),
        ('FROM a\nSYSTEM "b', "line 2: the quote is never closed"),
        ("FROM a\nLICENSE " + "x" * (5 << 20), "characters"),
        ("FROM a\nPARAMETER temperatur 1", "unknown parameter 'temperatur'"),
        ("FROM a\nPARAMETER num_ctx 1.5", "'num_ctx' must be an integer"),
        ("FROM a\nPARAMETER num_ctx 99999999999999999999", "'num_ctx' must be an integer"),
        ("FROM a\nPARAMETER top_p nan", "'top_p' must be a number"),
        ("FROM a\nPARAMETER use_mmap perhaps", "must be true or false"),
    ],
)
def test_mistakes_are_named(text, reason):
    with pytest.raises(ServeError, match=reason) as caught:
        parse_modelfile(text)
    assert caught.value.code is Code.INVALID_ARG


TEXTS = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r"), max_size=60).filter(
    lambda text: '"""' not in text
)


@given(system=TEXTS, template=TEXTS, license=TEXTS, content=TEXTS, stop=TEXTS.filter(bool), heat=st.floats(0, 100))
def test_what_is_written_reads_back_the_same(system, template, license, content, stop, heat):
    file = Modelfile(
        base="a b.gguf",
        parameters={"stop": [stop, "x"], "temperature": heat, "seed": -1},
        template=template,
        system=system,
        licenses=[license],
        messages=[Message("user", content)],
    )
    assert parse_modelfile(write_modelfile(file, ("a comment",))) == file


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(ServeError):
        assert parse_modelfile("FROM a\n" + text).base == "a"


def test_parameters_as_show_prints_them():
    shown = shown_parameters({"temperature": 1.0, "stop": ["a", "b\n"], "num_ctx": 8, "use_mmap": True})
    assert shown.splitlines()[:2] == ["num_ctx" + " " * 24 + "8", "stop" + " " * 27 + '"a"']
    assert shown.splitlines()[-2:] == ["temperature" + " " * 20 + "1", "use_mmap" + " " * 23 + "true"]
