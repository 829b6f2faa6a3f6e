"""The shared memory routes: Triton's *system shared memory* and *CUDA shared memory* extensions."""

from __future__ import annotations

import base64
import binascii
from functools import partial
from typing import Any

import orjson

from bident.doors.access import Api
from bident.doors.http.exchange import Exchange
from bident.doors.http.routes import Routes
from bident.doors.http.v2_json import loads
from bident.doors.http.v2_parameters import misread
from bident.engine.engine import Engine
from bident.errors import invalid_arg
from bident.wire.shown import shown

_API = Api.SHARED_MEMORY
_PART = "shared_memory"
_ALL = ("",)
"""The parameters of the routes without a region: they are about all of them."""


class SharedMemoryRoutes:
    """Registers and lists regions as clients ask for it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._memory = engine.shared_memory

    def routes_into(self, routes: Routes) -> None:
        """Add the routes to ``routes``."""
        for kind, status, register in (
            ("system", self.system_status, self.register_system),
            ("cuda", self.cuda_status, self.register_cuda),
        ):
            unregister = partial(self.unregister, kind)
            region = f"/v2/{kind}sharedmemory/region/{{}}"
            for pattern, defaults in ((f"/v2/{kind}sharedmemory", _ALL), (region, ())):
                routes.add("GET", f"{pattern}/status", status, defaults=defaults, api=_API)
                routes.add("POST", f"{pattern}/register", register, defaults=defaults, api=_API)
                routes.add("POST", f"{pattern}/unregister", unregister, defaults=defaults, api=_API)

    def system_status(self, exchange: Exchange) -> None:
        """The region that is asked for, or all."""
        regions = self._memory.system_regions(exchange.params[0])
        exchange.respond_json(orjson.dumps([region._asdict() for region in regions]))

    def cuda_status(self, exchange: Exchange) -> None:
        """None: there are no GPUs."""
        self._memory.cuda_regions(exchange.params[0])
        exchange.respond_json(b"[]")

    async def register_system(self, exchange: Exchange) -> None:
        """Register the region as the body says: ``{"key", "offset"?, "byte_size"}``."""
        name, document = self._asked(exchange, "system")
        key = _member(document, "key")
        if type(key) is not str:
            raise misread("key", document, "string", "it is the name of a shared memory object")
        _member(document, "byte_size")
        offset = _size("offset", document) if "offset" in document else 0
        await self._engine.apply(_PART, "register_system", name, key, offset, _size("byte_size", document))
        exchange.respond(200)

    async def register_cuda(self, exchange: Exchange) -> None:
        """Refuse the region, once the body is right: ``{"raw_handle": {"b64"}, "device_id", "byte_size"}``."""
        name, document = self._asked(exchange, "cuda")
        handle = _member(document, "raw_handle")
        encoded = handle.get("b64") if type(handle) is dict else None
        if type(encoded) is not str:
            raise misread("b64", handle, "string", "a raw handle is in base64")
        device, size = _size("device_id", document), _size("byte_size", document)
        try:
            raw_handle = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise invalid_arg("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t") from None
        await self._engine.apply(_PART, "register_cuda", name, raw_handle, device, size)
        exchange.respond(200)

    async def unregister(self, kind: str, exchange: Exchange) -> None:
        """Forget the region, or all."""
        await self._engine.apply(_PART, f"unregister_{kind}", exchange.params[0])
        exchange.respond(200)

    def _asked(self, exchange: Exchange, kind: str) -> tuple[str, dict[str, Any]]:
        """The name of the region to register, and the body."""
        self._memory.check_allowed()
        name = exchange.params[0]
        if not name:
            raise invalid_arg(
                f"'region name' is necessary to register {kind} shared memory region: POST to "
                f"/v2/{kind}sharedmemory/region/NAME/register"
            )
        return name, loads(exchange.body)


def _member(document: dict[str, Any], key: str) -> Any:
    if key not in document:
        raise invalid_arg(f"Shared memory register request has no '{key}' field, got {shown(document)}")
    return document[key]


def _size(key: str, document: dict[str, Any]) -> int:
    number = document.get(key)
    if type(number) is not int or number < 0:
        raise misread(key, document, "unsigned-integer", "it must be an integer >= 0")
    return number
