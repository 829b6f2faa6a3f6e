"""The Containerfile, read as a builder reads it: nothing can build images in the tests."""

from __future__ import annotations

import json
import re
import shlex
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[3]


def instructions() -> list[tuple[str, str]]:
    """Every instruction and what follows it, on one line."""
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for line in lines if line.strip() for word, _, rest in [line.partition(" ")]]


def of(kind: str) -> list[str]:
    return [rest for word, rest in instructions() if word == kind]


def test_only_known_instructions() -> None:
    known = {
        "ARG",
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "ENV",
        "USER",
        "VOLUME",
        "EXPOSE",
        "HEALTHCHECK",
        "ENTRYPOINT",
        "CMD",
    }
    assert {word for word, _ in instructions()} <= known


def test_what_is_copied_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    assert "*" in ignored
    for rest in of("COPY"):
        *sources, _ = shlex.split(rest)
        if sources[0].startswith("--from="):
            continue
        for source in sources:
            assert (ROOT / source).exists(), source
            assert any(fnmatch(source, pattern) for pattern in kept), f"{source} is kept out by .dockerignore"


def test_the_base_is_pinned_and_slim() -> None:
    (version,) = (rest.partition("=")[2] for rest in of("ARG"))
    assert re.fullmatch(r"3\.\d+\.\d+-slim-\w+", version)
    assert all("python:${PYTHON}" in rest for rest in of("FROM"))


def test_it_runs_as_nobody_special_and_is_watched() -> None:
    (user,) = of("USER")
    assert user == "bident"
    assert any("useradd --uid 10001" in rest for rest in of("RUN"))
    (health,) = of("HEALTHCHECK")
    command = json.loads(health.partition("CMD ")[2])
    assert command[:2] == ["python3", "-c"]
    compile(command[2], "health", "exec")


def test_what_it_runs_is_the_command() -> None:
    assert json.loads(of("ENTRYPOINT")[0]) == ["bident"]
    assert json.loads(of("CMD")[0])[0] == "serve"


def test_its_name_in_the_comment_is_the_versions() -> None:
    from bident.ship.compose import BIDENT_IMAGE

    assert f"-t {BIDENT_IMAGE} ." in (ROOT / "Containerfile").read_text(encoding="utf-8")
