"""A real model in a real child: loaded once, shared, kept, grown, unloaded."""

from __future__ import annotations

import asyncio
import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from runner_asking import LONG, children, end_children, generate, read_on, the_only, until
from sample_models import text_model

from bident.errors import Code, ServeError
from bident.text.runner.limits import Limits
from bident.text.runner.residency import Residency

SMALL = {"num_ctx": 512}


@pytest.fixture(autouse=True)
def _nothing_is_left():
    yield
    assert end_children() == set()


def test_asking_streaming_and_forwarding(smollm2_weights):
    async def run():
        residency = Residency()
        try:
            async with residency.lease(text_model(smollm2_weights), SMALL) as lease:
                assert (lease.context_length, lease.slots) == (512, 4)
                assert lease.load_ns > 50_000_000
                chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
                events = [event async for event in lease.stream("/v1/chat/completions", chat)]
                assert events[-1]["choices"][0]["finish_reason"] == "length"
                assert len(await lease.ask("/tokenize", {"content": "hello world"})) == 1
                raw = b"".join([piece async for piece in lease.forward("/v1/messages", {**chat, "stream": True})])
                assert raw.startswith(b"event: message_start")
            async with residency.lease(text_model(smollm2_weights), {}) as lease:
                assert lease.load_ns < 50_000_000 or lease.context_length > 512
        finally:
            await residency.close()

    asyncio.run(run())


def test_llama_cpp_refuses_in_its_own_words_and_goes_on(smollm2_weights):
    async def run():
        residency = Residency()
        async with residency.lease(text_model(smollm2_weights), SMALL) as lease:
            with pytest.raises(ServeError, match="exceeds the available context size") as too_long:
                await generate(lease, prompt="word " * 600)
            assert too_long.value.code is Code.INVALID_ARG
            with pytest.raises(ServeError) as no_embeddings:
                await lease.ask("/v1/embeddings", {"input": "x"})
            assert no_embeddings.value.code is Code.UNSUPPORTED
            with pytest.raises(ServeError):
                await lease.ask("/nowhere", {})
            with pytest.raises(ServeError, match="cannot be passed on"):
                await lease.ask("/tokenize", {"content": "\ud800"})
            assert await generate(lease)
        await residency.close()

    asyncio.run(run())


def test_many_requests_share_one_load(smollm2_weights):
    async def one(residency):
        async with residency.lease(text_model(smollm2_weights), SMALL) as lease:
            return await generate(lease), the_only(residency).pid

    async def run():
        residency = Residency()
        answers = await asyncio.gather(*(one(residency) for _ in range(8)))
        assert len({pid for _, pid in answers}) == 1
        assert all(text for text, _ in answers)
        await residency.close()

    asyncio.run(run())


def test_a_stream_that_is_closed_frees_its_slot_at_once(smollm2_weights):
    async def run():
        residency = Residency(Limits(slots=1))
        async with residency.lease(text_model(smollm2_weights), SMALL) as lease:
            stream = lease.stream("/completion", {"prompt": "Once", "n_predict": LONG, "ignore_eos": True})
            await stream.__anext__()
            await stream.aclose()
            begun = time.monotonic()
            assert await generate(lease, 1)
            assert time.monotonic() - begun < 5
        await residency.close()

    asyncio.run(run())


def test_leaving_the_lease_ends_a_stream_that_was_not_closed(smollm2_weights):
    async def run():
        residency = Residency(Limits(slots=1))
        model = text_model(smollm2_weights)
        async with residency.lease(model, SMALL) as lease:
            stream = lease.stream("/completion", {"prompt": "Once", "n_predict": LONG, "ignore_eos": True})
            await stream.__anext__()
        async with residency.lease(model, SMALL) as lease:
            assert await asyncio.wait_for(generate(lease, 1), 10)
        with pytest.raises(ServeError):
            await read_on(stream)
        await residency.close()

    asyncio.run(run())


def test_the_context_grows_by_a_reload_and_never_shrinks(smollm2_weights):
    async def run():
        residency = Residency(Limits(context_length=256))
        model = text_model(smollm2_weights)

        async def length(options):
            async with residency.lease(model, options) as lease:
                assert await generate(lease, 1)
                return lease.context_length, the_only(residency).pid

        first, pid = await length({})
        assert first == 256
        assert await length({"num_ctx": 512}) != (512, pid)
        grown = await length({"num_ctx": 300})
        assert grown[0] == 512
        assert await length({}) == grown
        assert len(children()) == 1
        await residency.close()

    asyncio.run(run())


def test_the_context_is_at_most_what_the_model_was_trained_for(smollm2_weights):
    async def run():
        residency = Residency(Limits(slots=1))
        async with residency.lease(text_model(smollm2_weights), {"num_ctx": 1_000_000}) as lease:
            assert lease.context_length == 8192
        await residency.close()

    asyncio.run(run())


def test_keep_alive_unloads_after_the_last_request(smollm2_weights):
    async def run():
        residency = Residency()
        model = text_model(smollm2_weights)
        async with residency.lease(model, SMALL, 0.05) as lease:
            await generate(lease, 40)  # takes longer, but the clock does not run while the model is in use
            assert the_only(residency).active == 1
        pid = the_only(residency).pid
        await until(lambda: residency.running() == [])
        await until(lambda: not psutil.pid_exists(pid))
        async with residency.lease(model, SMALL, 0):
            pass
        assert residency.running() == []
        async with residency.lease(model, SMALL, math.inf):
            pass
        assert the_only(residency).expires_at is None
        await residency.unload(model)
        assert residency.running() == []
        assert children() == set()
        await residency.close()

    asyncio.run(run())


def test_unloading_a_model_in_use_waits_until_nobody_uses_it(smollm2_weights):
    async def run():
        residency = Residency()
        model = text_model(smollm2_weights)
        async with residency.lease(model, SMALL) as lease:
            await residency.unload(model)
            assert await generate(lease)
        assert residency.running() == []
        await residency.close()

    asyncio.run(run())


def test_a_load_that_nobody_waits_for_any_more_is_given_up(smollm2_weights):
    async def run():
        residency = Residency()

        async def ask():
            async with residency.lease(text_model(smollm2_weights), SMALL):
                pytest.fail("it was cancelled")

        asking = asyncio.create_task(ask())
        await until(children)
        asking.cancel()
        await asyncio.wait([asking])
        await until(lambda: not children())
        async with residency.lease(text_model(smollm2_weights), SMALL) as lease:
            assert await generate(lease, 1)
        await residency.close()

    asyncio.run(run())


def test_a_load_that_takes_too_long_fails(smollm2_weights):
    async def run():
        residency = Residency(Limits(load_seconds=0.01))
        with pytest.raises(ServeError, match=r"not loaded within 0\.01 seconds"):
            async with residency.lease(text_model(smollm2_weights), SMALL):
                pass
        await residency.close()

    asyncio.run(run())


def test_closing_tells_those_who_wait_and_those_who_are_answered(smollm2_weights):
    async def run():
        residency = Residency(Limits(slots=1))
        model = text_model(smollm2_weights)

        async def ask():
            async with residency.lease(model, SMALL) as lease:
                await generate(lease, LONG)

        asking = [asyncio.create_task(ask()) for _ in range(3)]
        await until(lambda: residency.running() and the_only(residency).active == 1)
        await residency.close()
        errors = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(error) for error in errors] == [ServeError] * 3
        with pytest.raises(ServeError, match="shutting down"):
            async with residency.lease(model, SMALL):
                pass

    asyncio.run(run())


_PARENT = """
import asyncio, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from sample_models import text_model
from bident.text.runner.residency import Residency

async def main():
    residency = Residency()
    async with residency.lease(text_model(Path(sys.argv[1])), {"num_ctx": 256}):
        print(residency.running()[0].pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def test_no_child_outlives_a_parent_that_was_killed(smollm2_weights):
    command = [sys.executable, "-c", _PARENT, str(smollm2_weights), str(Path(__file__).parent)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    child.wait(10)
    parent.stdout.close()


def test_no_limit_on_loading(smollm2_weights):
    async def run():
        for seconds in (0, math.inf):
            residency = Residency(Limits(load_seconds=seconds))
            async with residency.lease(text_model(smollm2_weights), SMALL) as lease:
                assert await generate(lease, 1)
            await residency.close()

    asyncio.run(run())


def test_models_that_have_left_are_forgotten(smollm2_weights, tmp_path):
    async def run():
        residency = Residency()
        for name in ("one", "two", "three"):
            path = tmp_path / f"{name}.gguf"
            path.symlink_to(smollm2_weights)
            async with residency.lease(text_model(path, name), SMALL, 0):
                pass
            await residency.unload(text_model(path, name))
        assert len(residency._residents) == 1
        await residency.close()

    asyncio.run(run())


def test_the_child_asks_for_a_key_and_shows_no_page(smollm2_weights):
    import httpx

    async def run():
        residency = Residency()
        async with residency.lease(text_model(smollm2_weights), SMALL) as lease:
            process = lease._loaded.process
            async with httpx.AsyncClient(base_url=f"http://{process.host}:{process.port}") as client:
                assert (await client.post("/completion", json={"prompt": "x"})).status_code == 401
                key = {"Authorization": f"Bearer {process.key}"}
                assert (await client.get("/", headers=key)).status_code == 404
            environment = psutil.Process(process.pid).environ()
            assert environment["GGML_NO_BACKTRACE"] == "1"
            assert environment["OMP_NUM_THREADS"] == str(lease._loaded.plan.threads)
            assert process.key not in " ".join([*environment.values(), *psutil.Process(process.pid).cmdline()])
            listening = psutil.Process(process.pid).net_connections()
            assert {each.laddr.ip for each in listening} == {"127.0.0.1"}
        await residency.close()

    asyncio.run(run())
