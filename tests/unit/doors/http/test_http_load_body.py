"""The body of a load request, which may carry files of hundreds of megabytes."""

from __future__ import annotations

import base64
import json
import threading
from typing import Any

import pytest


@pytest.mark.parametrize(("content", "status"), [("AAAA", 503), ("not base64!", 400)])
def test_files_are_decoded_where_no_other_client_waits_for_it(
    door: Any, monkeypatch: pytest.MonkeyPatch, content: str, status: int
) -> None:
    decoders: list[int] = []
    decode = base64.b64decode

    def noted(*args: object, **kwargs: object) -> bytes:
        decoders.append(threading.get_ident())
        return decode(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(base64, "b64decode", noted)
    body = json.dumps({"parameters": {"config": "{}", "file:1/model.onnx": content}}).encode()
    head = b"POST /v2/repository/models/m/load HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n" % len(body)

    answer = door.ask(head + body)

    assert answer.status == status
    assert len(decoders) == 1
    assert decoders[0] != threading.get_ident()
