"""Several real models: they share the memory and the processor, and none keeps another out for good."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import psutil
import pytest
from runner_asking import LONG, children, end_children, generate, the_only, until
from sample_models import text_model

from bident.errors import Code, ServeError
from bident.text.gguf import read_facts
from bident.text.runner.limits import Limits
from bident.text.runner.memory import need_of
from bident.text.runner.residency import Residency

SMALL = {"num_ctx": 256}
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _nothing_is_left():
    yield
    assert end_children() == set()


@pytest.fixture
def two(smollm2_weights, tmp_path):
    """Two models: the same weights in two places."""
    found = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.gguf"
        path.symlink_to(smollm2_weights)
        found.append(text_model(path, name))
    return found


async def ask(residency, model, tokens=1):
    async with residency.lease(model, SMALL) as lease:
        return await generate(lease, tokens)


def names(residency):
    return sorted(running.model.name.model for running in residency.running())


def test_two_models_side_by_side(two):
    async def run():
        residency = Residency()
        await asyncio.gather(*(ask(residency, model) for model in two))
        assert names(residency) == ["one", "two"]
        for running in residency.running():
            assert 50 * MIB < running.size < 600 * MIB
        await residency.close()

    asyncio.run(run())


def test_models_that_differ_only_in_their_modelfiles_share_a_child(smollm2_weights):
    async def run():
        residency = Residency()
        await ask(residency, text_model(smollm2_weights, "one"))
        await ask(residency, text_model(smollm2_weights, "two", system="Be brief"))
        assert len(children()) == 1
        await residency.close()

    asyncio.run(run())


def test_the_idle_one_leaves_when_one_is_the_limit(two):
    async def run():
        residency = Residency(Limits(max_loaded=1))
        for model in (*two, two[0]):
            await ask(residency, model)
            assert names(residency) == [model.name.model]
            assert len(children()) == 1
        await residency.close()

    asyncio.run(run())


def test_nobody_is_kept_out_by_a_model_that_is_always_busy(two):
    async def run():
        residency = Residency(Limits(max_loaded=1, slots=2))

        async def keep_busy():
            while True:
                await ask(residency, two[0], 4)

        crowd = [asyncio.create_task(keep_busy()) for _ in range(6)]
        await until(lambda: residency.running() and the_only(residency).active == 2)
        assert await asyncio.wait_for(ask(residency, two[1]), 20)
        for task in crowd:
            task.cancel()
        await asyncio.wait(crowd)
        await residency.close()

    asyncio.run(run())


def test_what_does_not_fit_is_refused_and_nothing_else_suffers(two):
    async def run():
        residency = Residency(Limits(memory=300 * MIB, slots=1))
        await ask(residency, two[0])
        with pytest.raises(ServeError, match=r"model requires more system memory \(0\.\d GiB\) than is av") as refused:
            async with residency.lease(two[1], {"num_ctx": 8192}):
                pass
        assert refused.value.code is Code.UNAVAILABLE
        assert names(residency) == ["one"]
        await residency.close()

    asyncio.run(run())


def test_the_estimate_is_what_the_process_takes(smollm2_weights):
    async def run():
        residency = Residency()
        async with residency.lease(text_model(smollm2_weights), {"num_ctx": 4096}) as lease:
            await generate(lease, 1)
            plan = lease._loaded.plan
            need = need_of(text_model(smollm2_weights), plan).total - plan.prompt_cache_bytes
            assert abs(the_only(residency).size - need) < 60 * MIB
        await residency.close()

    asyncio.run(run())


def test_two_hundred_at_once_are_answered_or_refused(smollm2_weights):
    async def run():
        residency = Residency(Limits(max_queue=30))
        model = text_model(smollm2_weights)
        answers = await asyncio.gather(*(ask(residency, model) for _ in range(200)), return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, ServeError)]
        assert {error.message for error in refused} == {
            "server busy, please try again.  maximum pending requests exceeded"
        }
        assert len(answers) - len(refused) == 30
        assert all(answers)
        await residency.close()

    asyncio.run(run())


def test_clients_that_vanish_leave_nothing_behind(smollm2_weights):
    async def run():
        residency = Residency(Limits(slots=2))
        model = text_model(smollm2_weights)
        asking = [asyncio.create_task(ask(residency, model, LONG)) for _ in range(10)]
        await until(lambda: residency.running() and the_only(residency).active == 2)
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
        assert the_only(residency).active == 0
        assert await asyncio.wait_for(ask(residency, model), 10)
        process = psutil.Process(the_only(residency).pid)
        await until(lambda: all(each.status != "ESTABLISHED" for each in process.net_connections()))
        await residency.close()

    asyncio.run(run())


def test_a_running_model_that_embeds(smollm2_weights):
    async def run():
        residency = Residency()
        facts = replace(read_facts(smollm2_weights), pooling="mean")
        model = text_model(smollm2_weights, facts=facts, capabilities=frozenset({"embedding"}))
        async with residency.lease(model, SMALL) as lease:
            answer = await lease.ask("/v1/embeddings", {"input": ["one", "two words"]})
            assert [len(each["embedding"]) for each in answer["data"]] == [576, 576]
            assert lease.slots == 1
        await residency.close()

    asyncio.run(run())
