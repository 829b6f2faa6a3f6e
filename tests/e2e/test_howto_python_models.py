"""The model of docs/how-to/python-models.md, as a reader copies it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from asking import Asker
from model_folders import write_model
from serving import Launch

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "python-models.md"


def test_the_pages_model_answers_the_pages_question(launch: Launch, tmp_path: Path) -> None:
    blocks = re.findall(r"^```\w*\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    config, source, command = blocks[1:4]
    write_model(tmp_path / "repository", "shout", config, model_py=source)
    ask = Asker(launch(tmp_path / "repository").port)
    *_, url, _, body = shlex.split(command.replace("\\\n", ""))

    assert ask.post(url.removeprefix("http://127.0.0.1:8000"), body.encode()).data("LOUD") == ["HELLO!"]
