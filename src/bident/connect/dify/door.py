"""Dify's SSRF proxy: what makes it let a request through to a private address."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from bident.client import Reply
from bident.connect.neighbour import File

DOMAINS, ADDRESSES = "SSRF_PROXY_ALLOW_PRIVATE_DOMAINS", "SSRF_PROXY_ALLOW_PRIVATE_IPS"
"""Of Dify 1.15 and newer, in its ``docker/.env``; the proxy's entry point turns them into rules when it starts."""
APPLY = "docker compose up -d --force-recreate ssrf_proxy"
"""In Dify's folder ``docker``. A restart keeps the rules that were made before."""
HOST_MACHINE = "host.docker.internal"
"""What a container calls the machine that it runs on: Docker Desktop knows it by itself, Linux where it is added."""
VARIABLES_FILE, OLD_FILE, HOSTS_FILE = "ssrf.env", "dify-1.14/bident.conf", "docker-compose.override.yaml"
_DENIED = "X-Squid-Error"


def host_of(url: str) -> str:
    """The name or address in ``url``."""
    return urlsplit(url).hostname or ""


def variable(host: str) -> str:
    """The one setting that lets requests to ``host`` through, and to nothing else: ``NAME=VALUE``."""
    address = as_address(host)
    if address is None:
        return f"{DOMAINS}={host}"
    return f"{ADDRESSES}={address}/{address.max_prefixlen}"


def as_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """``host`` if it is an address; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def files(host: str) -> list[File]:
    """What Dify's proxy has to be told about ``host``, for either generation of it."""
    kind = "dstdomain" if as_address(host) is None else "dst"
    found = [
        File(VARIABLES_FILE, _VARIABLES.format(variable=variable(host), apply=APPLY), "a line for Dify's docker/.env"),
        File(
            OLD_FILE,
            _OLD_RULES.format(kind=kind, host=host),
            "only for Dify 1.14 and older, where its proxy refuses: mounted as /etc/squid/conf.d/bident.conf",
        ),
    ]
    if host == HOST_MACHINE:
        found.append(File(HOSTS_FILE, _HOSTS, "on Linux: beside Dify's docker/docker-compose.yaml"))
    return found


def is_refusal(reply: Reply) -> bool:
    """Whether Dify's proxy said no, and not a server behind it."""
    return reply.headers.get(_DENIED, "").startswith("ERR_ACCESS_DENIED")


def error_of(reply: Reply) -> str:
    """What kept the proxy from getting an answer, in Squid's words; empty where it got one."""
    return str(reply.headers.get(_DENIED, "")).partition(" ")[0]


_VARIABLES = """\
# For docker/.env of Dify 1.15 and newer, whose ssrf_proxy refuses private addresses. Is the variable there already?
# Then add to its value, after a comma. It counts once the container was made anew:
#   {apply}
{variable}
"""

_OLD_RULES = """\
# Dify 1.14 and older have no variable for this, and let private addresses through. Only where theirs was changed so
# that it refuses: this file among those that squid.conf includes, before its last rule.
acl bident {kind} {host}
http_access allow localnet bident
"""

_HOSTS = """\
# Docker Desktop knows host.docker.internal by itself; on Linux these containers have to be told.
# ssrf_proxy asks for the tensor models, plugin_daemon for the text models.
services:
  ssrf_proxy:
    extra_hosts:
      - "host.docker.internal:host-gateway"
  plugin_daemon:
    extra_hosts:
      - "host.docker.internal:host-gateway"
"""
