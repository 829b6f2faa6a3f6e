"""Files that are not what they should be: each gets its reason, and the model beside it never notices.

The store refuses most of them by their header; here they come to llama.cpp itself.
"""

from __future__ import annotations

import asyncio
import shutil

import pytest
from gguf_edits import cut, with_bytes, with_counts, with_uint32
from runner_asking import LONG, children, end_children, generate, the_only, until
from sample_models import text_model

from bident.errors import Code, ServeError
from bident.text.gguf import read_facts
from bident.text.runner.limits import Limits
from bident.text.runner.residency import Residency

SMALL = {"num_ctx": 256}

DAMAGES = {
    "empty": (lambda source, target: cut(source, target, 0), "magic"),
    "magic only": (lambda source, target: cut(source, target, 4), ""),
    "no GGUF": (lambda source, target: with_bytes(source, target, 0, b"PK\x03\x04"), "magic"),
    "cut in the metadata": (lambda source, target: cut(source, target, 100_000), ""),
    "cut in half": (lambda source, target: cut(source, target, 49_000_000), "corrupted or incomplete"),
    "2^62 tensors": (lambda source, target: with_counts(source, target, 1 << 62, 33), ""),
    "2^62 keys": (lambda source, target: with_counts(source, target, 272, 1 << 62), ""),
    "no heads": (lambda source, target: with_uint32(source, target, "llama.attention.head_count", 0), ""),
    "7 heads": (lambda source, target: with_uint32(source, target, "llama.attention.head_count", 7), ""),
    "one block more": (lambda source, target: with_uint32(source, target, "llama.block_count", 31), ""),
    "one block less": (lambda source, target: with_uint32(source, target, "llama.block_count", 29), ""),
    "another width": (lambda source, target: with_uint32(source, target, "llama.embedding_length", 577), ""),
}


@pytest.fixture(autouse=True)
def _nothing_is_left():
    yield
    assert end_children() == set()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_with_the_reason(smollm2_weights, tmp_path, damage):
    make, reason = DAMAGES[damage]
    model = text_model(make(smollm2_weights, tmp_path / "damaged.gguf"), "damaged", facts=read_facts(smollm2_weights))

    async def run():
        residency = Residency()
        with pytest.raises(ServeError, match=rf"unable to load model 'damaged:latest': .*{reason}") as refused:
            async with residency.lease(model, SMALL):
                pass
        assert refused.value.code is Code.INTERNAL
        assert "Traceback" not in refused.value.message
        await residency.close()

    asyncio.run(run())


def test_a_context_of_zero_kills_the_child_and_only_the_child(smollm2_weights, tmp_path):
    damaged = with_uint32(smollm2_weights, tmp_path / "zero.gguf", "llama.context_length", 0)
    model = text_model(damaged, "zero", facts=read_facts(smollm2_weights))

    async def run():
        residency = Residency(Limits(backoff_seconds=0.05))
        async with residency.lease(text_model(smollm2_weights), SMALL) as healthy:
            speaking = asyncio.create_task(generate(healthy, 200))
            for _ in range(3):
                async with residency.lease(model, SMALL) as lease:
                    with pytest.raises(ServeError, match=r"an error was encountered while running .*SIGABRT.*n_ctx"):
                        await generate(lease)
            with pytest.raises(ServeError, match=r"'zero:latest' has failed: it crashed 3 times .*n_ctx") as failed:
                async with residency.lease(model, SMALL):
                    pass
            assert failed.value.code is Code.UNAVAILABLE
            assert await speaking
        assert the_only(residency).model.name.model == "smollm2"
        await residency.close()

    asyncio.run(run())


def test_a_repaired_file_is_tried_at_once(smollm2_weights, tmp_path):
    path = cut(smollm2_weights, tmp_path / "model.gguf", 1000)
    facts = read_facts(smollm2_weights)

    async def run():
        residency = Residency(Limits(crash_limit=1))
        for message in ("unable to load", "has failed"):
            with pytest.raises(ServeError, match=message):
                async with residency.lease(text_model(path, facts=facts), SMALL):
                    pass
        path.unlink()
        path.symlink_to(smollm2_weights)
        async with residency.lease(text_model(path), SMALL) as lease:
            assert await generate(lease, 1)
        await residency.close()

    asyncio.run(run())


def test_weights_that_were_replaced_are_loaded_anew(smollm2_weights, tmp_path):
    path = tmp_path / "model.gguf"
    shutil.copyfile(smollm2_weights, path)

    async def run():
        residency = Residency()
        model = text_model(path)
        async with residency.lease(model, SMALL) as lease:
            stream = lease.stream("/completion", {"prompt": "Once", "n_predict": LONG, "ignore_eos": True})
            await stream.__anext__()
            first = the_only(residency).pid
            newer = tmp_path / "newer.gguf"
            shutil.copyfile(smollm2_weights, newer)
            newer.replace(path)
            assert await stream.__anext__()  # what is being answered goes on with the old file
            await stream.aclose()
        async with residency.lease(model, SMALL) as lease:
            assert await generate(lease, 1)
            assert the_only(residency).pid != first
        await residency.close()

    asyncio.run(run())


def test_weights_cut_off_while_they_are_in_use(smollm2_weights, tmp_path):
    path = tmp_path / "model.gguf"
    shutil.copyfile(smollm2_weights, path)

    async def run():
        residency = Residency(Limits(backoff_seconds=0.05))
        async with residency.lease(text_model(path), {**SMALL, "use_mmap": True}) as lease:
            with path.open("r+b") as file:
                file.truncate(5_000_000)
            with pytest.raises(
                ServeError, match=r"an error was encountered while running the model: .*SIGBUS.*changed"
            ):
                await generate(lease, LONG)
        with pytest.raises(ServeError, match=r"unable to load|has failed"):
            async with residency.lease(text_model(path, facts=read_facts(smollm2_weights)), SMALL):
                pass
        await residency.close()

    asyncio.run(run())


def test_weights_that_are_gone(smollm2_weights, tmp_path):
    path = tmp_path / "model.gguf"
    path.symlink_to(smollm2_weights)
    model = text_model(path)
    path.unlink()

    async def run():
        residency = Residency()
        with pytest.raises(ServeError, match="not found") as gone:
            async with residency.lease(model, SMALL):
                pass
        assert gone.value.code is Code.NOT_FOUND
        await residency.close()

    asyncio.run(run())


def test_what_waits_for_a_damaged_model_is_told_by_one_load(smollm2_weights, tmp_path):
    model = text_model(cut(smollm2_weights, tmp_path / "cut.gguf", 1000), facts=read_facts(smollm2_weights))

    async def ask(residency):
        async with residency.lease(model, SMALL):
            pass

    async def run():
        residency = Residency()
        asking = [asyncio.create_task(ask(residency)) for _ in range(20)]
        await until(children)
        errors = await asyncio.gather(*asking, return_exceptions=True)
        assert {type(error) for error in errors} == {ServeError}
        assert len({str(error) for error in errors}) == 1
        await residency.close()

    asyncio.run(run())
