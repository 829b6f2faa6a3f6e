"""The way from Dify to the models, tried from this machine as far as it can see."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

from bident.client import Client, TextClient
from bident.connect.dify.door import APPLY, HOST_MACHINE, HOSTS_FILE, error_of, host_of, is_refusal, variable
from bident.connect.elsewhere import Elsewhere
from bident.connect.neighbour import Hop, failed
from bident.connect.site import Address
from bident.errors import ServeError
from bident.local.ports import lan_address

_SECONDS = 5.0
_READY = "/v2/health/ready"
_SETUP = "/console/api/setup"
_DOCKER_DESKTOP = ("darwin", "win32")
"""Where Docker runs in a virtual machine of its own, and reaches what listens to loopback alone."""


class _Api(Elsewhere):
    protocol = "Dify's API"
    flag = "--set dify=URL"


class _Proxy(Elsewhere):
    protocol = "an HTTP proxy"
    flag = "--set proxy=URL"


def hops(tensor: Address | None, text: Address | None, dify: str, proxy: str) -> Iterator[Hop]:
    """Each server here, then by the name that Dify has for it; then Dify and its proxy, where they were named."""
    if tensor is not None:
        yield _ready(tensor)
        yield _by_name("tensor server", Client, tensor, "--http-address=0.0.0.0 --api-key-file=FILE")
    if text is not None:
        yield _by_name("text server", TextClient, text, "--text-host=0.0.0.0 --text-api-key-file=FILE")
    if dify:
        yield _dify(dify)
    if proxy and tensor is not None:
        yield _through(proxy, tensor.theirs)


def _ready(tensor: Address) -> Hop:
    if Client(tensor.here, _SECONDS, tensor.credentials).ready():
        return Hop("here -> tensor server", True, f"ready at {tensor.here}")
    return Hop("here -> tensor server", False, f"{tensor.here} does not say that it is ready", "bident status")


def _by_name(server: str, kind: type[Client] | type[TextClient], address: Address, listening: str) -> Hop:
    """Whether ``server`` answers under its name there; ``listening``: the flags that make it listen beyond loopback."""
    name, host = f"Dify -> {server}", host_of(address.theirs)
    where, note = address.theirs, ""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        if host != HOST_MACHINE:
            return Hop(
                name, True, f"not tried: {host} has no meaning on this machine; as a container's name it need not"
            )
        if sys.platform in _DOCKER_DESKTOP:
            return Hop(
                name, True, f"not tried: Docker Desktop passes requests for {host} on to this machine's loopback"
            )
        own = lan_address()
        if not own:
            return Hop(name, True, f"not tried: this machine has no address but loopback that could be {host}")
        where, note = where.replace(host, own, 1), f", which containers call {host}"
    if kind(where, _SECONDS, address.credentials).live():
        return Hop(name, True, f"answers at {where}{note}")
    return Hop(
        name, False, f"nothing answers at {where}{note}", f"it must listen to more than loopback: bident up {listening}"
    )


def _dify(url: str) -> Hop:
    """Dify's API says whether it is set up, to anybody, and every answer of it names its version."""
    name = "here -> Dify"
    try:
        api = _Api(url, _SECONDS)
        reply = api.exchange("GET", _SETUP)
        step = api.json_of(_SETUP, reply)["step"]
    except (ServeError, KeyError, TypeError) as error:
        cure = "docker compose ps in Dify's folder docker; --set dify=URL says where it is"
        return failed(name, error, f"{url} is no Dify", cure)
    version = reply.headers.get("X-Version", "")
    seen = f"Dify{f' {version}' if version else ''} answers at {url}"
    if step != "finished":
        return Hop(name, False, f"{seen}, and has no administrator yet", f"open {url}/install")
    return Hop(name, True, seen)


def _through(proxy: str, server: str) -> Hop:
    """Whether Dify's proxy passes a request on to ``server``: the way of HTTP nodes and of tools."""
    name = "Dify's proxy -> tensor server"
    try:
        reply = _Proxy(proxy, _SECONDS).exchange("GET", f"{server}{_READY}")
    except ServeError as error:
        cure = "it listens inside of Dify's network: publish its port 3128, or leave --set proxy out"
        return Hop(name, False, error.message, cure)
    if is_refusal(reply):
        cure = f"in Dify's docker/.env: {variable(host_of(server))}, then there: {APPLY}"
        return Hop(name, False, f"refused with {reply.status} by Squid: {host_of(server)} is a private address", cure)
    if error_of(reply):
        cure = f"the container ssrf_proxy must know {host_of(server)} and share a network with it"
        if host_of(server) == HOST_MACHINE:
            cure = f"on Linux {HOSTS_FILE} gives the container that name; the server must listen to more than loopback"
        return Hop(name, False, f"Squid could not reach {server} ({error_of(reply)})", cure)
    if reply.status == 200:
        return Hop(name, True, f"passes on to {server}")
    return Hop(name, False, f"{server}{_READY} answered {reply.status} through the proxy", "bident status")
