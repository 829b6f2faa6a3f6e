"""Go's text/template: the language, carried out within limits."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bident.errors import Code, ServeError
from bident.text.template.evaluation import Limits, render
from bident.text.template.parser import parse
from bident.text.template.values import Opening, Struct

DATA: dict[str, Any] = {
    "Name": "Ada",
    "Empty": "",
    "Items": ["a", "b", "c"],
    "Ages": {"Ada": 36, "Bob": 7},
    "Pi": 3.5,
    "Yes": True,
    "Nested": {"Deep": {"Value": "found"}},
    "Message": Struct("Message", {"Role": "user"}, {"role": "user"}),
}


def written(template: str, **more: Any) -> str:
    return render(parse(template), DATA | more)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("plain", "plain"),
        ("a {{ .Name }} b", "a Ada b"),
        ("a  {{- .Name -}}  b", "aAdab"),
        ("a\n\n{{- /* a comment */ -}}\n\nb", "ab"),
        ("a {{/* a comment */}} b", "a  b"),
        ("{{ .Nested.Deep.Value }}", "found"),
        ('{{ (index .Nested "Deep").Value }}', "found"),
        ("{{ .Missing }}", "<no value>"),
        ("{{ if .Empty }}a{{ else if .Name }}b{{ else }}c{{ end }}", "b"),
        ("{{ if .Empty }}a{{ else if .Empty }}b{{ else }}c{{ end }}", "c"),
        ("{{ if not .Empty }}a{{ end }}", "a"),
        ('{{ if and .Name .Yes (eq .Name "Ada") }}a{{ end }}', "a"),
        ("{{ or .Empty .Name }}", "Ada"),
        ("{{ and .Empty (index .Items 99) }}", ""),
        ("{{ range .Items }}<{{ . }}>{{ end }}", "<a><b><c>"),
        ("{{ range $i, $item := .Items }}{{ $i }}={{ $item }},{{ end }}", "0=a,1=b,2=c,"),
        ("{{ range $name, $age := .Ages }}{{ $name }}{{ $age }} {{ end }}", "Ada36 Bob7 "),
        ("{{ range .Nothing }}a{{ else }}none{{ end }}", "none"),
        ("{{ range 3 }}{{ . }}{{ end }}", "012"),
        ('{{ range .Items }}{{ if eq . "b" }}{{ continue }}{{ end }}{{ . }}{{ end }}', "ac"),
        ('{{ range .Items }}{{ if eq . "b" }}{{ break }}{{ end }}{{ . }}{{ end }}', "a"),
        ("{{ range .Items }}{{ $.Name }}{{ end }}", "AdaAdaAda"),
        ("{{ with .Nested.Deep }}{{ .Value }}{{ end }}", "found"),
        ("{{ with $x := .Name }}{{ $x }}{{ else }}none{{ end }}", "Ada"),
        ("{{ $x := 1 }}{{ range .Items }}{{ $x = . }}{{ end }}{{ $x }}", "c"),
        ("{{ $x := 1 }}{{ if .Yes }}{{ $x := 2 }}{{ end }}{{ $x }}", "1"),
        ('{{ eq .Name "Bob" "Ada" }}', "true"),
        ("{{ ne 1 2 }}{{ lt 1 2 }}{{ le 2 2 }}{{ gt 1 2 }}{{ ge 1 2 }}", "truetruetruefalsefalse"),
        ('{{ len .Items }}{{ len "é" }}', "32"),
        ('{{ len (slice .Items 1) }}{{ index (slice .Items 1 2) 0 }}{{ slice "hello" 1 3 }}', "2bel"),
        (
            '{{ printf "%s is %d, %5.2f %q %v %t %%" .Name 36 .Pi .Name .Items .Yes }}',
            'Ada is 36,  3.50 "Ada" [a b c] true %',
        ),
        ('{{ .Name | printf "%s-%s" "x" }}', "x-Ada"),
        ('{{ .Items | len | printf "%03d" }}', "003"),
        ('{{ print 1 2 "a" "b" }}{{ println .Name }}', "1 2a bAda\n".replace("a b", "ab")),
        ('{{ json .Ages }}{{ json "<a & b>" }}', '{"Ada":36,"Bob":7}"<a & b>"'),
        ("{{ .Message.Role }}{{ .Message }}", 'user{"role":"user"}'),
        ("{{ \"a\\n\\u00e9\\x41\" }}{{ `raw\\n` }}{{ 'x' }}{{ 0x10 }}{{ 1.5 }}{{ -2 }}", "a\néAraw\\n120161.5-2"),
        ('{{ define "greet" }}Hi {{ . }}{{ end }}{{ template "greet" .Name }}', "Hi Ada"),
        ('{{ block "greet" .Name }}Hi {{ . }}{{ end }}', "Hi Ada"),
        ("{{ true }}{{ 1.0 }}{{ 100000000.0 }}{{ .Ages }}", "true1100000000map[Ada:36 Bob:7]"),
        ("{{ toTypeScriptType .Schema }}", "string | number[] | null"),
    ],
)
def test_template_language(template: str, expected: str) -> None:
    schema = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}

    assert written(template, Schema=schema) == expected


def test_template_dates_are_dates() -> None:
    today, yesterday = written("{{ currentDate }} {{ yesterdayDate }}").split()

    assert yesterday < today
    assert len(today) == len("2026-11-30")


def test_nothing_is_written_after_the_answer_has_begun() -> None:
    template = "{{ range .Items }}{{ . }}{{ $.Response }}{{ end }} end"

    assert written(template, Response=Opening("so")) == "aso"


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{{ .Name ", "not closed"),
        ("a\nb {{ if .Name }}c", "template:2: {{ end }} is missing"),
        ("{{ end }}", "nothing is open"),
        ("{{ else }}", "nothing is open"),
        ("{{ if }}{{ end }}", "a value is missing"),
        ("{{ }}", "empty"),
        ("{{ .Name | }}", "a value is missing"),
        ("{{ (.Name }}", "')' is missing"),
        ("{{ .Name ) }}", "unexpected ')'"),
        ("{{ nope .Name }}", 'function "nope" not defined'),
        ("{{ break }}", "inside a range"),
        ('{{ "a }}', "unexpected '\"'"),
        ("{{ # }}", "unexpected '#'"),
        ("{{ if true }}" * 200, "levels of nesting"),
        ("{{ " + "(" * 300 + "1" + ")" * 300 + " }}", "levels of nesting"),
        ('{{ "\\ud800" }}', "no character"),
        ("{{ template .Name }}", "name is a string"),
        ("{{ if .Name }}{{ else }}{{ else }}{{ end }}", "unexpected words"),
        ("x" * ((1 << 20) + 1), "too long"),
    ],
)
def test_what_is_no_template_is_an_error_with_its_line(template: str, problem: str) -> None:
    with pytest.raises(ServeError, match="template") as caught:
        parse(template)

    assert problem in caught.value.message
    assert caught.value.code is Code.INVALID_ARG


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{{ .Message.Nope }}", "can't evaluate field Nope in type Message"),
        ("{{ .Name.Nope }}", "can't evaluate field Nope in type string"),
        ("{{ $x }}", "undefined variable $x"),
        ("{{ $x = 1 }}", "undefined variable $x"),
        ("{{ index .Items 3 }}", "index out of range: 3"),
        ('{{ index .Items "a" }}', "string is no index"),
        ("{{ slice .Items 2 1 }}", "index out of range"),
        ("{{ lt .Name 1 }}", "cannot compare"),
        ("{{ eq .Items 1 }}", "incomparable"),
        ("{{ len 1 }}", "int has no length"),
        ("{{ not }}", "wrong number of args for not"),
        ("{{ .Name 1 }}", "can't give an argument"),
        ("{{ range .Name }}{{ end }}", "range can't iterate over string"),
        ('{{ template "nope" }}', 'no template "nope"'),
        ('{{ printf "%99999999d" 1 }}', "wider than"),
    ],
)
def test_what_cannot_be_carried_out_is_an_error(template: str, problem: str) -> None:
    with pytest.raises(ServeError, match="template") as caught:
        written(template)

    assert problem in caught.value.message
    assert caught.value.code is Code.INVALID_ARG


@pytest.mark.parametrize(
    "template",
    [
        "{{ range 1000000000 }}{{ end }}",
        "{{ range 1000 }}{{ range 1000 }}{{ range 1000 }}x{{ end }}{{ end }}{{ end }}",
        '{{ define "x" }}{{ template "x" . }}{{ end }}{{ template "x" . }}',
        '{{ $x := "aaaaaaaa" }}{{ range 100 }}{{ $x = print $x $x }}{{ end }}',
        '{{ $x := printf "%1000d" 1 }}{{ range 100000 }}{{ $x }}{{ end }}',
    ],
)
def test_a_template_that_loops_or_swells_is_an_error(template: str) -> None:
    with pytest.raises(ServeError, match="cannot be carried out"):
        render(parse(template), DATA, Limits(steps=20_000, characters=100_000))


def test_values_nested_too_deeply_are_an_error() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]

    with pytest.raises(ServeError, match="nested too deeply"):
        written("{{ .Deep }}", Deep=deep)


WORDS = st.sampled_from(
    [
        "{{",
        "}}",
        "{{-",
        "-}}",
        "if",
        "else",
        "end",
        "range",
        "with",
        "define",
        "template",
        "break",
        "$x",
        ":=",
        "=",
        ".Items",
        ".Name",
        ".",
        "$",
        "|",
        "(",
        ")",
        ",",
        '"a"',
        "`b`",
        "'c'",
        "1",
        "-2.5",
        "and",
        "or",
        "not",
        "eq",
        "lt",
        "len",
        "index",
        "slice",
        "printf",
        "json",
        "nil",
        "true",
        "/*",
        "*/",
        "text",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(WORDS, max_size=30).map(" ".join))
def test_any_template_is_rendered_or_refused(template: str) -> None:
    with contextlib.suppress(ServeError):
        assert isinstance(render(parse(template), DATA, Limits(steps=2000, characters=5000)), str)
