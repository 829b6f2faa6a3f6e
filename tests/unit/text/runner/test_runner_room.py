"""What fits, with a memory of the test's own: every child takes what its plan needs."""

from __future__ import annotations

import asyncio

import pytest
from fakes import MIB, FakeLoaded, model

from bident.errors import Code, ServeError
from bident.text.runner import room as room_module
from bident.text.runner import wish as wish_module
from bident.text.runner.limits import Limits
from bident.text.runner.memory import need_of
from bident.text.runner.resident import Resident
from bident.text.runner.room import Room
from bident.text.runner.wish import wish_of

BIG = 1000 * MIB


class Machine:
    """``total`` bytes of memory; weights are mapped files, which count as available although they are used."""

    def __init__(self, folder, total: int, **limits) -> None:
        self.folder, self.total = folder, total
        self.limits = Limits(**{"memory_reserve": 0, "threads": 4, **limits})
        self.room = Room(self.limits, self.available, self.taken_by)
        self.residents: dict[int, Resident] = {}
        self.arriving: dict[int, FakeLoaded] = {}

    def available(self) -> int:
        taken = [self.taken_by(pid) for pid in self.residents]
        return self.total - sum(used - mapped for used, mapped in taken)

    def taken_by(self, pid: int) -> tuple[int, int]:
        loaded = self.residents[pid].loaded or self.arriving.get(pid)
        if loaded is None:
            return 0, 0
        need = need_of(loaded.wish.model, loaded.plan)
        return need.total, need.weights

    def wish(self, name="m", size=100 * MIB, **options):
        return wish_of(model(self.folder, name, size), {"num_ctx": 1024, **options}, self.limits)

    async def make(self, wish, resident=None):
        resident = resident or Resident(wish.model.name.short, self.limits, self._load)
        plan = await self.room.make(resident, [one for one in self.residents.values() if one is not resident], wish)
        await resident.give_up()
        pid = len(self.residents) + 1
        resident.loaded = FakeLoaded(wish, plan, pid)
        resident.used_at = pid
        self.residents[pid] = resident
        return resident

    async def _load(self, resident, wish):
        raise AssertionError("nobody asks")

    def names(self):
        return [one.label.partition(":")[0] for one in self.residents.values() if one.loaded]


def test_all_slots_when_there_is_room(tmp_path):
    async def run():
        resident = await Machine(tmp_path, BIG).make(Machine(tmp_path, BIG).wish())
        assert (resident.loaded.plan.slots, resident.loaded.plan.threads) == (4, 4)

    asyncio.run(run())


@pytest.mark.parametrize(("total", "slots"), [(340 * MIB, 4), (280 * MIB, 2), (220 * MIB, 1)])
def test_fewer_slots_when_there_is_less(tmp_path, total, slots):
    async def run():
        machine = Machine(tmp_path, total)
        assert (await machine.make(machine.wish())).loaded.plan.slots == slots

    asyncio.run(run())


def test_a_model_that_embeds_has_one_slot(tmp_path):
    async def run():
        machine = Machine(tmp_path, BIG)
        embeds = model(tmp_path, "e", capabilities=frozenset({"embedding"}))
        assert (await machine.make(wish_of(embeds, {}, machine.limits))).loaded.plan.slots == 1

    asyncio.run(run())


def test_what_cannot_fit_is_refused_with_the_numbers_and_nobody_leaves(tmp_path):
    async def run():
        machine = Machine(tmp_path, BIG)
        await machine.make(machine.wish("a"))
        with pytest.raises(ServeError) as refused:
            await machine.make(machine.wish("huge", 2000 * MIB))
        assert refused.value.code is Code.UNAVAILABLE
        assert refused.value.message.startswith(
            "model requires more system memory (2.1 GiB) than is available (1.0 GiB): 2.0 GiB of weights"
        )
        assert machine.names() == ["a"]

    asyncio.run(run())


def test_the_least_recently_used_leaves_first(tmp_path):
    async def run():
        machine = Machine(tmp_path, 900 * MIB)
        for name in ("a", "b", "c"):
            await machine.make(machine.wish(name))
        next(iter(machine.residents.values())).used_at = 100
        assert machine.names() == ["a", "b", "c"]
        await machine.make(machine.wish("d"))
        assert machine.names() == ["a", "c", "d"]

    asyncio.run(run())


def test_mapped_weights_count_although_the_system_calls_them_available(tmp_path):
    async def run():
        machine = Machine(tmp_path, 700 * MIB)
        await machine.make(machine.wish("a", 400 * MIB))
        await machine.make(machine.wish("b", 400 * MIB))
        assert machine.names() == ["b"]

    asyncio.run(run())


def test_a_limit_on_their_number(tmp_path):
    async def run():
        machine = Machine(tmp_path, 10 * BIG, max_loaded=2)
        for name in ("a", "b", "c"):
            await machine.make(machine.wish(name))
        assert machine.names() == ["b", "c"]

    asyncio.run(run())


def test_a_limit_on_the_memory_of_all(tmp_path):
    async def run():
        machine = Machine(tmp_path, 10 * BIG, memory=540 * MIB)
        for name in ("a", "b"):
            await machine.make(machine.wish(name))
        assert [one.loaded.plan.slots for one in machine.residents.values()] == [4, 1]
        await machine.make(machine.wish("c"))
        assert machine.names() == ["b", "c"]

    asyncio.run(run())


def test_a_reserve_is_left_alone(tmp_path):
    async def run():
        machine = Machine(tmp_path, 340 * MIB, memory_reserve=60 * MIB)
        assert (await machine.make(machine.wish())).loaded.plan.slots == 2

    asyncio.run(run())


def test_growing_may_use_what_the_present_child_gives_back(tmp_path):
    async def run():
        machine = Machine(tmp_path, 400 * MIB)
        resident = await machine.make(machine.wish())
        grown = await machine.make(machine.wish(num_ctx=2048), resident)
        assert grown is resident
        assert (resident.loaded.plan.context_length, resident.loaded.plan.slots) == (2048, 2)
        with pytest.raises(ServeError, match="more system memory"):
            await Machine.make(machine, machine.wish(size=500 * MIB, name="n"), resident)
        assert resident.loaded is not None

    asyncio.run(run())


def test_one_at_work_is_waited_for_and_admits_nobody_meanwhile(tmp_path):
    async def run():
        machine = Machine(tmp_path, 10 * BIG, max_loaded=1)
        busy = await machine.make(machine.wish("a"))
        loaded = busy.loaded
        assert await busy.enter(machine.wish("a"), None) is loaded
        making = asyncio.create_task(machine.make(machine.wish("b")))
        while not busy.leaving:
            await asyncio.sleep(0)
        late = asyncio.create_task(busy.enter(machine.wish("a"), None))
        await asyncio.sleep(0.01)
        assert not late.done()
        assert not making.done()
        busy.leave(loaded)
        await making
        assert machine.names() == ["b"]
        late.cancel()

    asyncio.run(run())


@pytest.mark.parametrize(("total", "limits"), [(10 * BIG, {"max_loaded": 1}), (400 * MIB, {})])
def test_one_that_is_arriving_is_in_memory_and_is_waited_for(tmp_path, total, limits):
    async def run():
        machine = Machine(tmp_path, total, slots=1, **limits)
        wish = machine.wish("a", 250 * MIB)
        may = asyncio.Event()

        async def load(resident, wish):
            loaded = machine.arriving[1] = FakeLoaded(wish, wish.plan(machine.limits, 1, 1), 1)
            resident.arriving = loaded.process
            await may.wait()
            return loaded

        first = machine.residents[1] = Resident("a:latest", machine.limits, load)
        entering = asyncio.create_task(first.enter(wish, None))
        while first.arriving is None:
            await asyncio.sleep(0)
        making = asyncio.create_task(machine.make(machine.wish("b", 250 * MIB)))
        await asyncio.sleep(0.01)
        assert not making.done()
        may.set()
        first.leave(await entering)
        machine.arriving.clear()
        await making
        assert machine.names() == ["b"]

    asyncio.run(run())


def test_one_that_need_not_leave_after_all_goes_on(tmp_path):
    async def run():
        machine = Machine(tmp_path, 10 * BIG, max_loaded=1)
        busy = await machine.make(machine.wish("a"))
        await busy.enter(machine.wish("a"), None)
        making = asyncio.create_task(machine.make(machine.wish("b")))
        while not busy.leaving:
            await asyncio.sleep(0)
        late = asyncio.create_task(busy.enter(machine.wish("a"), None))
        await asyncio.sleep(0)
        making.cancel()
        assert await asyncio.wait_for(late, 5) is busy.loaded

    asyncio.run(run())


def test_threads_are_shared(tmp_path, monkeypatch):
    async def run():
        machine = Machine(tmp_path, 10 * BIG, threads=0)
        for module in (room_module, wish_module):
            monkeypatch.setattr(module, "usable_cores", lambda: 9)
        plans = [(await machine.make(machine.wish(name))).loaded.plan for name in ("a", "b", "c")]
        assert [plan.threads for plan in plans] == [8, 4, 2]
        assert (await machine.make(machine.wish("d", num_thread=6))).loaded.plan.threads == 6
        monkeypatch.setattr(room_module, "usable_cores", lambda: 1)
        assert (await machine.make(machine.wish("e"))).loaded.plan.threads == 1

    asyncio.run(run())
