"""Runs an exported app with Dify's own graph engine; started by the tests with the Python of ``.venvs/dify``.

Usage: ``python dify_engine.py APP.yml SANDBOX_URL``, inputs as JSON on standard input. Writes one line of JSON: the
outputs, or the error. An input ``{"file": PATH}`` is an uploaded picture, ``{"url": URL}`` one that Dify fetches.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import httpx
from graphon.dsl import importer, loads, node_factory
from graphon.engine_events import GraphRunFailedEvent, GraphRunSucceededEvent
from graphon.file import File, FileTransferMethod, FileType


class Storage:
    """Stands in for Dify's file storage, which the engine is given by Dify."""

    def download(self, file: File, /) -> bytes:
        if file.transfer_method == FileTransferMethod.REMOTE_URL:
            return httpx.get(file.remote_url).raise_for_status().content
        return Path(file.reference).read_bytes()


def uploaded(value: Any) -> Any:
    """``value``, or the file that it says was uploaded."""
    if not isinstance(value, dict) or not value.keys() & {"file", "url"}:
        return value
    if "url" in value:
        return File(file_type=FileType.IMAGE, transfer_method=FileTransferMethod.REMOTE_URL, remote_url=value["url"])
    return File(file_type=FileType.IMAGE, transfer_method=FileTransferMethod.LOCAL_FILE, reference=value["file"])


def main(app: str, sandbox: str) -> None:
    logging.disable(logging.CRITICAL)
    # In Dify the engine gets a storage; loaded alone it has none, and refuses what would need one.
    importer._unsupported_http_request_reason = lambda _node: None
    node_factory._UnsupportedHttpRequestFileManager = Storage
    engine = loads(
        Path(app).read_text(encoding="utf-8"),
        start_inputs={name: uploaded(value) for name, value in json.load(sys.stdin).items()},
        credentials={"code": {"execution_endpoint": sandbox}},
    )
    answer: dict[str, Any] = {"error": "the engine said nothing"}
    try:
        for event in engine.run():
            if isinstance(event, GraphRunSucceededEvent):
                answer = {"outputs": event.outputs}
            elif isinstance(event, GraphRunFailedEvent):
                answer = {"error": event.error}
    except RuntimeError:
        pass  # it follows the event that says why
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
