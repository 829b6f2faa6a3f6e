"""What a real Triton 2.51 answered to a conversation about shared memory, and what Bident answers.

``data/triton_2_51_shared_memory.json`` holds its steps, each with the answer and the memory after it (in
hexadecimal, without the zeros at its end). The models are identities, Y = X: ``fp32`` and ``bytes``. In
the beginning the object ``KEY`` of 256 bytes has the numbers 0 to 15 as FP32 and behind them three strings.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from http_line import get, post

from tests.shared_objects import SharedObject
from tests.unit.doors.http.conftest import EngineDoor

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no POSIX shared memory")
STEPS = json.loads((Path(__file__).parent / "data" / "triton_2_51_shared_memory.json").read_text("utf-8"))
SIZE = 256

OTHER_WORDS = {
    "unable to process address space": "invalid args",
    "Invalid shared memory region: 'KEY'": "reserved",
    "The document is empty": "the body is empty",
}
"""Where Bident does not use Triton's words: a part of each message."""
NOT_SAID = re.compile(r"\[request id: <id_unknown>\] | for model '\w+'|\. .*")


def begin(shared: SharedObject) -> None:
    strings = b"".join(struct.pack("<I", len(text)) + text for text in (b"ab", b"", b"xyz"))
    shared.put(np.arange(16, dtype=np.float32).tobytes() + strings)


def expected_error(message: str) -> str:
    """What Bident's message must have of Triton's."""
    other = next((ours for theirs, ours in OTHER_WORDS.items() if theirs in message), None)
    return other or NOT_SAID.sub("", message)


def test_the_conversation(door: EngineDoor) -> None:
    with SharedObject(SIZE) as shared:
        begin(shared)
        for number, step in enumerate(STEPS):
            body = step["body"].replace("KEY_BARE", shared.key.lstrip("/")).replace("KEY", shared.key)
            request = get(step["path"]) if step["verb"] == "GET" else post(step["path"], body.encode())
            answer = door.ask(request)
            where = (number, step["path"], step["body"], answer)
            text = answer.body.decode().replace(shared.key, "KEY").replace(shared.key.lstrip("/"), "KEY_BARE")
            # What is the client's mistake is 400 here.
            assert answer.status in (step["status"], 400 if step["status"] == 500 else step["status"]), where
            if step["status"] == 200:
                assert (json.loads(text) if text else text) == (json.loads(step["answer"]) if step["answer"] else ""), (
                    where
                )
            else:
                assert expected_error(json.loads(step["answer"])["error"]) in json.loads(text)["error"], where
            assert shared.get(SIZE).hex().rstrip("0") == step["memory"], where
