"""An HTTP listener: what its clients may cost, and how their requests are served."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Mapping

from bident.doors.access import Access
from bident.doors.http.exchange import Exchange, error_body
from bident.doors.http.limits import HttpLimits
from bident.doors.http.protocol import HttpConnection
from bident.doors.http.routes import Resource, Routes, Unrouted
from bident.doors.http.status import LINE
from bident.doors.listener import Listener
from bident.engine.clients import Clients
from bident.errors import ServeError

logger = logging.getLogger("bident.http")

_PLAIN_ERROR = error_body("plain HTTP was sent to an HTTPS port: use https:// instead of http://")
_PLAIN_ANSWER = (
    LINE[400]
    + b"Content-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(_PLAIN_ERROR)
    + _PLAIN_ERROR
)


class HttpServer(Listener[HttpConnection]):
    """Accepts connections on one address and hands their requests to ``routes``."""

    plain_answer = _PLAIN_ANSWER
    limit_hint = " (--http-max-connections)"

    def __init__(
        self,
        routes: Routes,
        limits: HttpLimits,
        name: str,
        clients: Clients | None = None,
        *,
        access: Access | None = None,
        keeps_names: bool = False,
    ) -> None:
        """``name`` is how the log calls this service; ``clients`` is kept up to date with who is connected.

        ``access``: the rules, if there are any. ``keeps_names``: exchanges have the headers as they were sent, too.
        """
        super().__init__(name, clients, connections=limits.connections, read_seconds=limits.read_seconds)
        self.access = access
        self.keeps_names = keeps_names
        self.routes = routes
        self.limits = limits
        self.is_draining = False
        """While True, every answer is the last one on its connection."""

    def make_connection(self) -> HttpConnection:
        return HttpConnection(self)

    def refusal(self, resource: Resource, headers: Mapping[bytes, bytes]) -> Unrouted | None:
        """The answer to a request that may not have ``resource``; None if it may."""
        refusal = self.access.refusal(resource.api, headers) if self.access is not None else None
        return None if refusal is None else Unrouted.refused(refusal)

    def dispatch(self, resource: Resource, exchange: Exchange) -> None:
        """Serve ``exchange``; whatever goes wrong, it gets an answer."""
        try:
            waiting = resource.serve(exchange)
        except ServeError as error:
            exchange.respond_failure(error)
        except Exception:  # noqa: BLE001 - nothing a request causes may cost another one its answer
            self._answer_fault(exchange)
        else:
            if waiting is not None and inspect.isawaitable(waiting):
                self.run(waiting, exchange)

    def run(self, answering: Awaitable[None], exchange: Exchange) -> None:
        """Run ``answering``, which answers ``exchange``, as a task."""
        self.run_task(self._wait(answering, exchange))

    async def _wait(self, waiting: Awaitable[None], exchange: Exchange) -> None:
        try:
            await waiting
        except ServeError as error:
            exchange.respond_failure(error)
        except Exception:  # noqa: BLE001 - nothing a request causes may cost another one its answer
            self._answer_fault(exchange)

    def _answer_fault(self, exchange: Exchange) -> None:
        """A fault of ours: the log gets the traceback, the client a plain sentence."""
        logger.exception("%s: serving %s failed", self.name, exchange.target.decode("latin-1"))
        if exchange.data is None:
            exchange.respond_error(500, "internal error in the server; its log has the details")
