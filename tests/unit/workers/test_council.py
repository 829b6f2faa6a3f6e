"""What workers agree on: all of them or none, whatever becomes of one meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from bident.errors import Code, ServeError
from bident.workers.council import Council
from bident.workers.journal import MODELS, Change
from bident.workers.process import Start
from tests.unit.engine.engine_fakes import on_loop

LOAD = Change(MODELS, "load", ("m", None, None))
UNLOAD = Change(MODELS, "unload", ("m", False))
REGION = Change("shared_memory", "register_system", ("r", "/k", 0, 8))
FAILURE = ServeError(Code.INVALID_ARG, "it does not load")

Step = Callable[[], Awaitable[Any]]


class Worker:
    """A worker whose link is to a test: ``did`` is what it has switched to, ``before`` what a change does first."""

    def __init__(self, council: Council, number: int, *, is_first: bool = True) -> None:
        self.number = number
        self.start = Start(number, None, is_first)  # type: ignore[arg-type]
        self.link = SimpleNamespace(ask=self.ask)
        self.did: list[Change] = []
        self.before: Step | None = None
        self.says: dict[str, Any] = {}
        self._council = council

    async def ask(self, verb: str, *arguments: Any) -> Any:
        if verb != "change":
            said = self.says[verb]
            if isinstance(said, Exception):
                raise said
            return said
        number, change = arguments
        if self.before is not None:
            await self.before()
        if number:
            await self.serve("at_gate", number)
        self.did.append(change)
        return f"{self.number} did {change.verb}"

    async def serve(self, verb: str, *arguments: Any) -> Any:
        return await self._council.serve(self, verb, arguments)  # type: ignore[arg-type]

    def die(self) -> None:
        self._council.leave(self)  # type: ignore[arg-type]


async def house(count: int = 3) -> tuple[Council, list[Worker]]:
    council = Council(count, reloads=True)
    workers = [Worker(council, number) for number in range(1, count + 1)]
    for worker in workers:
        await worker.serve("hello")
    for worker in workers:
        await worker.serve("loaded", ["base"])
    return council, workers


async def raises(error: Exception) -> None:
    raise error


@on_loop
async def test_a_load_is_made_by_all() -> None:
    _, workers = await house()
    await workers[1].serve("change", LOAD)
    assert [worker.did for worker in workers] == [[LOAD]] * 3


@on_loop
async def test_nobody_switches_before_all_are_ready() -> None:
    _, workers = await house()
    held = asyncio.Event()
    workers[2].before = held.wait
    loading = asyncio.ensure_future(workers[0].serve("change", LOAD))
    for _ in range(20):
        await asyncio.sleep(0)
    assert [worker.did for worker in workers] == [[], [], []]
    held.set()
    await loading
    assert [worker.did for worker in workers] == [[LOAD]] * 3


@pytest.mark.parametrize("failing", [0, 2])
@on_loop
async def test_where_one_fails_none_switches_and_its_words_are_told(failing: int) -> None:
    _, workers = await house()
    workers[failing].before = lambda: raises(FAILURE)
    with pytest.raises(ServeError) as caught:
        await workers[0].serve("change", LOAD)
    assert (caught.value.code, caught.value.message) == (FAILURE.code, FAILURE.message)
    assert [worker.did for worker in workers] == [[], [], []]
    workers[failing].before = None
    await workers[0].serve("change", LOAD)
    assert [worker.did for worker in workers] == [[LOAD]] * 3


@on_loop
async def test_who_dies_before_the_switch_is_not_waited_for() -> None:
    _, workers = await house()
    doomed = workers[2]

    async def die() -> None:
        doomed.die()
        raise ConnectionResetError

    doomed.before = die
    await workers[0].serve("change", LOAD)
    assert [worker.did for worker in workers] == [[LOAD], [LOAD], []]


@on_loop
async def test_a_change_is_made_to_the_end_where_the_one_that_asked_for_it_dies() -> None:
    _, workers = await house()
    held = asyncio.Event()
    workers[1].before = held.wait
    loading = asyncio.ensure_future(workers[0].serve("change", LOAD))
    for _ in range(20):
        await asyncio.sleep(0)
    workers[0].die()
    loading.cancel()  # as the link does to what it serves
    held.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert [worker.did for worker in workers[1:]] == [[LOAD], [LOAD]]
    await workers[1].serve("change", UNLOAD)
    assert workers[2].did == [LOAD, UNLOAD]


@on_loop
async def test_who_needs_not_wait_at_the_gate_does_not_hold_it_shut() -> None:
    _, workers = await house()
    workers[1].ask = None  # type: ignore[assignment,method-assign]

    async def unchanged(verb: str, *arguments: Any) -> None:
        workers[1].did.append(arguments[1])

    workers[1].link.ask = unchanged
    await workers[0].serve("change", LOAD)
    assert [worker.did for worker in workers] == [[LOAD]] * 3


@on_loop
async def test_other_changes_are_tried_first_where_they_are_asked_for() -> None:
    _, workers = await house()
    workers[1].before = lambda: raises(ServeError(Code.INVALID_ARG, "no such key"))
    with pytest.raises(ServeError, match=r"^no such key$"):
        await workers[1].serve("change", REGION)
    assert [worker.did for worker in workers] == [[], [], []]
    workers[1].before = None
    assert await workers[1].serve("change", REGION) == "2 did register_system"
    assert [worker.did for worker in workers] == [[REGION]] * 3


@on_loop
async def test_a_failure_elsewhere_names_the_worker() -> None:
    _, workers = await house()
    workers[2].before = lambda: raises(ServeError(Code.INTERNAL, "no memory"))
    with pytest.raises(ServeError, match=r"no memory \(in worker 3"):
        await workers[0].serve("change", REGION)


@on_loop
async def test_changes_of_one_name_wait_for_each_other_and_of_two_do_not() -> None:
    _, workers = await house()
    held = asyncio.Event()
    workers[0].before = held.wait
    first = asyncio.ensure_future(workers[1].serve("change", LOAD))
    second = asyncio.ensure_future(workers[2].serve("change", UNLOAD))
    for _ in range(20):
        await asyncio.sleep(0)
    workers[0].before = None
    await workers[2].serve("change", REGION)
    assert not second.done()
    held.set()
    await asyncio.gather(first, second)
    assert [[change for change in worker.did if change != REGION] for worker in workers] == [[LOAD, UNLOAD]] * 3


@on_loop
async def test_who_comes_later_is_told_what_was_changed_and_what_changes_meanwhile() -> None:
    council, workers = await house()
    await workers[0].serve("change", REGION)
    held = asyncio.Event()
    workers[0].before = held.wait
    loading = asyncio.ensure_future(workers[1].serve("change", LOAD))
    await asyncio.sleep(0)
    workers[2].die()
    late = Worker(council, 3, is_first=False)
    start = await late.serve("hello")
    assert (start.names, start.changes) == (["base"], [REGION])
    held.set()
    await loading
    assert late.did == [LOAD]


@on_loop
async def test_models_that_clients_have_loaded_or_unloaded_are_not_loaded_as_at_the_start() -> None:
    council, workers = await house()
    base = UNLOAD._replace(arguments=("base", False))
    await workers[0].serve("change", base)
    start = await Worker(council, 3, is_first=False).serve("hello")
    assert (start.names, start.changes) == ([], [base])


@on_loop
async def test_figures_of_the_dead_count_and_the_silent_are_remembered() -> None:
    _, workers = await house()
    for worker in workers:
        worker.says = {"figures": {"m": 10 * worker.number}}
    said = await workers[0].serve("gather", "figures", {"m": 1})
    assert said == [(2, {"m": 20}), (3, {"m": 30})]
    workers[1].says = {"figures": ConnectionResetError()}
    workers[2].die()
    said = await workers[0].serve("gather", "figures", {"m": 2})
    assert said == [(2, {"m": 20}), (0, {"m": 30})]


@on_loop
async def test_who_has_not_come_yet_is_not_ready_and_who_is_being_replaced_does_not_count() -> None:
    council = Council(2, reloads=True)
    first = Worker(council, 1)
    await first.serve("hello")
    assert await first.serve("gather", "ready", None) == [(2, None)]
    second = Worker(council, 2)
    await second.serve("hello")
    second.says = {"ready": False}
    assert await first.serve("gather", "ready", None) == [(2, False)]
    for worker in (first, second):
        await worker.serve("loaded", [])
    second.die()
    assert await first.serve("gather", "ready", None) == []
    again = Worker(council, 2, is_first=False)
    again.says = {"ready": False}
    await again.serve("hello")
    assert await first.serve("gather", "ready", None) == []
    await again.serve("loaded", [])
    assert await first.serve("gather", "ready", None) == [(2, False)]
