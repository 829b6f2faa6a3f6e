"""Chat templates in GGUF files that loop for ever or end the process: an error soon, and no other model waits."""

from __future__ import annotations

import asyncio
import time

import pytest
from gguf_edits import with_template
from runner_asking import end_children, generate, the_only
from sample_models import text_model

from bident.errors import Code, ServeError
from bident.text.runner.residency import Residency

SMALL = {"num_ctx": 256}
_RANGE = "range(99999)"
ENDLESS = f"{{% for a in {_RANGE} %}}{{% for b in {_RANGE} %}}{{% for c in {_RANGE} %}}{'{% endfor %}' * 3}"
ENDLESS_FOR_SOME = f"{{% if messages[0]['content'] == 'LOOP' %}}{ENDLESS}{{% endif %}}{{{{ messages[0]['content'] }}}}"
BOTTOMLESS = "{% macro down() %}{{ down() }}{% endmacro %}{{ down() }}"
QUICK_SECONDS = 20.0
"""Much less than the five minutes that loading may take."""


@pytest.fixture(autouse=True)
def _nothing_is_left():
    yield
    assert end_children() == set()


def test_an_endless_template_is_refused_while_other_models_are_loaded(smollm2_weights, tmp_path):
    endless = text_model(with_template(smollm2_weights, tmp_path / "endless.gguf", ENDLESS), "endless")

    async def run():
        residency = Residency()
        begun = time.monotonic()
        refusal = asyncio.create_task(_refusal(residency, endless))
        await asyncio.sleep(0)  # it is first in line
        async with residency.lease(text_model(smollm2_weights), SMALL) as lease:
            assert await generate(lease)
            assert not refusal.done(), "the other model has waited for it"
        refused = await refusal
        assert time.monotonic() - begun < QUICK_SECONDS
        assert refused.code is Code.INTERNAL
        assert "unable to load model 'endless:latest': its chat template" in refused.message
        assert "still running after 5 seconds" in refused.message
        assert the_only(residency).model.name.model == "smollm2"
        await residency.close()

    asyncio.run(run())


def test_a_template_that_ends_the_process_is_named(smollm2_weights, tmp_path):
    bottomless = text_model(with_template(smollm2_weights, tmp_path / "bottomless.gguf", BOTTOMLESS), "bottomless")

    async def run():
        residency = Residency()
        refused = await _refusal(residency, bottomless)
        assert "killed by signal" in refused.message
        assert "while its chat template (tokenizer.chat_template in the GGUF file) was tried" in refused.message
        await residency.close()

    asyncio.run(run())


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/apply-template"])
def test_a_template_that_is_endless_for_some_conversations(smollm2_weights, tmp_path, path):
    weights = with_template(smollm2_weights, tmp_path / "some.gguf", ENDLESS_FOR_SOME)

    async def run():
        residency = Residency()
        begun = time.monotonic()
        async with residency.lease(text_model(weights, "some"), SMALL) as lease:
            with pytest.raises(ServeError, match=r"while running the model: its chat template .* still running"):
                await _ask(lease, path, "LOOP")
        assert time.monotonic() - begun < QUICK_SECONDS
        async with residency.lease(text_model(weights, "some"), SMALL) as lease:
            await _ask(lease, path, "Hello")
        await residency.close()

    asyncio.run(run())


async def _refusal(residency, model) -> ServeError:
    with pytest.raises(ServeError) as refused:
        async with residency.lease(model, SMALL):
            pass
    return refused.value


async def _ask(lease, path, content) -> None:
    payload = {"messages": [{"role": "user", "content": content}], "max_tokens": 2}
    if path == "/apply-template":
        assert await lease.ask(path, payload)
    else:
        assert [each async for each in lease.stream(path, payload)]
