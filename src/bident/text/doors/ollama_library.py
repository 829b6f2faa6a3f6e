"""Ollama's endpoints about models: which there are, which are loaded, and how they come and go."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bident import __version__
from bident.text.doors.bodies import Bodies, parts
from bident.text.doors.endpoint import route
from bident.text.doors.fields import Fields
from bident.text.doors.framing import NDJSON, begun, line, streamed, until_gone
from bident.text.doors.moments import utc_expiry, utc_moment
from bident.text.doors.ollama_requests import required_model
from bident.text.doors.status import OLLAMA, json_answer
from bident.text.engine import TextEngine
from bident.text.model import TextModel

VERSION = "0.14.0"
"""Of the API that is spoken here: clients leave features out for servers that are too old."""
