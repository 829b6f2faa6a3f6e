from __future__ import annotations

import math
from dataclasses import replace

import pytest
from fakes import FACTS, MIB, model

from bident.errors import Code, ServeError
from bident.text.runner.limits import Limits
from bident.text.runner.machine import usable_cores
from bident.text.runner.memory import cache_bytes, need_of, refusal
from bident.text.runner.plan import loads
from bident.text.runner.wish import wish_of

LIMITS = Limits()


def wish(folder, options=None, limits=LIMITS, **more):
    return wish_of(model(folder, **more), options or {}, limits)


def test_the_context_comes_from_the_request_the_modelfile_or_the_setting(tmp_path):
    assert wish(tmp_path).context_length == 4096
    assert wish(tmp_path, parameters={"num_ctx": 2048}).context_length == 2048
    assert wish(tmp_path, {"num_ctx": 1024}, parameters={"num_ctx": 2048}).context_length == 1024
    assert wish(tmp_path, {"num_ctx": None}, parameters={"num_ctx": 2048}).context_length == 2048
    assert wish(tmp_path, {"num_ctx": 1024.0}).context_length == 1024


@pytest.mark.parametrize(("asked", "given"), [(100_000, 8192), (2**80, 8192), (1, 4), (-5, 4), (0, 4096)])
def test_the_context_is_kept_within_bounds(tmp_path, asked, given):
    assert wish(tmp_path, {"num_ctx": asked}).context_length == given


@pytest.mark.parametrize("value", ["4096", True, 1.5, [], {}, math.inf, math.nan])
def test_wrong_types(tmp_path, value):
    with pytest.raises(ServeError, match='option "num_ctx" must be of type integer') as wrong:
        wish(tmp_path, {"num_ctx": value})
    assert wrong.value.code is Code.INVALID_ARG


def test_a_flag_of_a_wrong_type(tmp_path):
    with pytest.raises(ServeError, match='option "use_mmap" must be of type boolean'):
        wish(tmp_path, {"use_mmap": 1})


def test_what_a_loaded_model_will_do_for(tmp_path):
    loaded = wish(tmp_path, {"num_ctx": 2048, "num_thread": 2})
    assert wish(tmp_path, {"num_ctx": 100}).is_met_by(loaded)
    assert wish(tmp_path, {"num_ctx": 2048, "num_thread": 2, "temperature": 1}).is_met_by(loaded)
    assert wish(tmp_path, {"num_ctx": 2048, "num_thread": 0}).is_met_by(loaded)
    assert not wish(tmp_path, {"num_ctx": 2049}).is_met_by(loaded)
    assert not wish(tmp_path, {"num_ctx": 100, "num_thread": 3}).is_met_by(loaded)
    assert not wish(tmp_path, {"num_ctx": 100, "use_mmap": False}).is_met_by(loaded)
    assert wish(tmp_path, {"use_mmap": False}).is_met_by(wish(tmp_path, {"use_mmap": False}))


def test_a_replaced_file_is_another_model(tmp_path):
    before = wish(tmp_path)
    assert wish(tmp_path).is_met_by(before)
    newer = tmp_path / "newer"
    newer.write_bytes(b"x")
    newer.replace(tmp_path / "m.gguf")
    assert not wish(tmp_path).is_met_by(before)


def test_the_plan_of_a_model_that_writes(tmp_path):
    plan = wish(tmp_path, {"num_ctx": 1024, "num_batch": 128}).plan(LIMITS, 4, 3)
    assert (plan.context_length, plan.slots, plan.threads, plan.batch, plan.micro_batch) == (1024, 4, 3, 128, 128)
    assert (plan.embedding, plan.gpu_layers, plan.use_mmap) == (False, -1, None)
    assert plan.prompt_cache_bytes == 4096 * 23040 // 2


def test_a_batch_has_room_for_a_token_of_each_slot(tmp_path):
    plan = wish(tmp_path, {"num_batch": 1}).plan(LIMITS, 4, 1)
    assert (plan.batch, plan.micro_batch) == (4, 4)
    plan = wish(tmp_path, {"num_ctx": 4}, capabilities=frozenset({"embedding"})).plan(LIMITS, 8, 1)
    assert plan.micro_batch == 8


def test_no_more_threads_than_cores(tmp_path):
    assert wish(tmp_path, {"num_thread": 10**6}).plan(LIMITS, 4, 1).threads == usable_cores()
    assert wish(tmp_path, {"num_thread": 1}).plan(LIMITS, 4, 3).threads == 1


def test_the_plan_of_a_model_that_embeds(tmp_path):
    embeds = wish(tmp_path, {"num_ctx": 2000}, capabilities=frozenset({"embedding"}))
    plan = embeds.plan(LIMITS, 1, 1)
    assert plan.embedding
    assert plan.batch == plan.micro_batch == 2000  # a text is embedded as a whole
    facts = replace(FACTS, pooling="rank")
    reranks = wish(tmp_path, {}, capabilities=frozenset({"rerank"}), facts=facts).plan(LIMITS, 1, 1)
    assert (reranks.embedding, reranks.pooling) == (True, "rank")


def test_a_quantised_cache_needs_flash_attention(tmp_path):
    plan = wish(tmp_path).plan(Limits(kv_cache_type="q8_0", flash_attention=False), 1, 1)
    assert (plan.kv_cache_type, plan.flash_attention) == ("q8_0", True)


def test_a_plan_travels_as_one_line(tmp_path):
    adapted = wish(tmp_path, adapters=(tmp_path / "m.gguf",))
    plan = adapted.plan(LIMITS, 1, 1)
    line = plan.dumps("secret", 7)
    assert line.count(b"\n") == 1
    assert loads(line) == (plan, "secret", 7)


def test_memory_is_weights_and_cache_and_work(tmp_path):
    plan = wish(tmp_path).plan(LIMITS, 4, 1)
    need = need_of(model(tmp_path), plan)
    assert need.weights == 100 * MIB
    assert need.cache == 4 * 4096 * 23040
    assert 64 * MIB < need.working - plan.prompt_cache_bytes < 96 * MIB
    assert need.total == need.weights + need.cache + need.working
    assert cache_bytes(FACTS, 32, "q8_0") == 23040 // 2 * 34


def test_the_refusal_has_the_numbers(tmp_path):
    plan = wish(tmp_path, {"num_ctx": 8192}).plan(LIMITS, 1, 1)
    said = refusal(need_of(model(tmp_path), plan), 3 << 30, plan)
    assert said.startswith("model requires more system memory (0.4 GiB) than is available (3.0 GiB)")
    assert "context of 8192 tokens" in said
