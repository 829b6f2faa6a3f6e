"""What a model asks of its server while it runs: other models' answers, loads, readiness.

A model that waits for itself, directly or over others, would wait for ever. Whoever asks is known
here, so such a circle is found before it closes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from bident.errors import Code, ServeError
from bident.wire.infer import InferRequest, InferResponse, Outcome

if TYPE_CHECKING:
    from bident.engine.servable import Servable


class Models(Protocol):
    """The models there are, as the engine keeps them."""

    def find(self, name: str, version: str) -> Servable:
        """Who answers for ``name`` and ``version`` ("" for the latest). Raises ServeError."""

    def cancel(self, request: InferRequest) -> None:
        """Nobody waits for the answer to ``request`` any more."""

    async def load(self, name: str, config: str | None, files: dict[str, bytes]) -> None:
        """Load or reload a model. Raises ServeError."""

    async def unload(self, name: str, *, dependents: bool = False) -> None:
        """Take a model out of service. Raises ServeError."""


class Calls:
    """The :class:`bident.backends.base.Server` of one instance."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self.open: dict[InferRequest, Servable] = {}
        """What the instance has asked and awaits, and of whom."""

    def infer(self, request: InferRequest) -> None:
        """Have another model answer ``request``. Raises ServeError if it is refused, or would never be answered."""
        servable = self._models.find(request.model_name, request.model_version)
        told = request.reply

        def reply(response: InferResponse) -> Outcome:
            if response.final:
                self.open.pop(request, None)
            return told(response)

        request.reply = reply
        self.open[request] = servable
        try:
            if not _can_answer(servable, set()):
                raise ServeError(
                    Code.UNAVAILABLE,
                    f"model '{servable.name}' would wait for itself: each of its instances waits for an answer that "
                    "only it can give; raise the count of its instance_group, or let it call itself without waiting",
                )
            servable.infer(request)
        except BaseException:
            self.open.pop(request, None)
            raise

    def cancel(self, request: InferRequest) -> None:
        """Nobody waits for the answer to ``request`` any more."""
        self._models.cancel(request)

    def is_model_ready(self, name: str, version: str) -> bool:
        """Whether a model answers requests."""
        try:
            return self._models.find(name, version).is_available
        except ServeError:
            return False

    def is_decoupled(self, name: str, version: str) -> bool:
        """Whether a model answers a request any number of times. Raises ServeError when it is not there."""
        return self._models.find(name, version).config.decoupled

    async def load(self, name: str, config: str | None, files: dict[str, bytes]) -> None:
        """Load or reload a model. Raises ServeError."""
        await self._models.load(name, config, files)

    async def unload(self, name: str, *, dependents: bool) -> None:
        """Take a model out of service. Raises ServeError."""
        await self._models.unload(name, dependents=dependents)


def _can_answer(servable: Servable, asked: set[Servable]) -> bool:
    """Whether some instance of ``servable`` can come to a new request, unless it waits for one of ``asked``."""
    if servable in asked:
        return False
    asked = {*asked, servable}
    lanes = servable.request_lanes
    if not lanes:
        return all(_can_answer(member, asked) for member in servable.members)
    return any(
        lane.executing is None or all(_can_answer(other, asked) for other in lane.calls.open.values()) for lane in lanes
    )
