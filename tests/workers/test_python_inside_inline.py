"""LANE inline: the event loop itself executes a model, which then may wait for nothing."""

from __future__ import annotations

import numpy as np
import pytest
from inside_site import asked, code, in_loop, write

from bident.errors import Code, ServeError

Q = "Q = pb_utils.InferenceRequest(model_name='m', inputs=[], requested_output_names=['O']); "


@in_loop
async def test_a_batch_is_answered_before_it_has_been_handed_over(start):
    site = await start("identity", inline=True)
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    told = site.send(asked({"IN0": rows[:1]}), asked({"IN0": rows[1:]}), inputs={"IN0": rows})
    assert told.ran
    np.testing.assert_array_equal(told.together[0]["OUT0"], rows)
    assert site.instance.is_available
    assert await site.instance.is_ready()


@in_loop
async def test_what_it_raises_costs_its_batch_the_answer(start):
    site = await start("script", inline=True)
    assert "SystemExit: 3" in (await site.refused("sys.exit(3)")).message
    assert await site.script("answer = 1") == 1


@in_loop
async def test_it_cannot_ask_the_server_which_waits_for_it(start):
    site = await start("script", inline=True)
    assert "use LANE 'thread'" in await site.script(Q + "answer = Q.exec().error().message()")
    text = "answer = caught(lambda: pb_utils.load_model('m'))"
    assert "use LANE 'thread'" in (await site.script(text))[1]
    threaded = "import threading; t = threading.Thread(target=lambda: self.kept.append(Q.exec().error().message()));"
    assert "use LANE 'thread'" in (await site.script(Q + threaded + "t.start(); t.join(); answer = self.kept"))[0]
    assert not site.peers.asked


@in_loop
async def test_it_knows_whose_code_it_runs_and_keeps_its_metrics(start):
    sites = [await start("script", inline=True, instance_name=name) for name in ("a", "b")]
    for site in sites:
        text = "answer = [pb_utils.get_model_dir(), caught(lambda: pb_utils.load_model('m'))[1]]"
        folder, refused = await site.script(text)
        assert folder.endswith("script/1")
        assert f"model '{site.instance._host.spec.instance_name}'" in refused
    text = "M = pb_utils.MetricFamily('m', '', pb_utils.MetricFamily.GAUGE).Metric(); M.set(2); answer = M.value()"
    assert await sites[0].script(text) == 2


@pytest.mark.parametrize(("method", "decoupled", "word"), [("async def", False, "async"), ("def", True, "decoupled")])
@in_loop
async def test_what_cannot_run_so_is_refused_when_it_is_loaded(start, tmp_path, method, decoupled, word):
    source = f"class TritonPythonModel:\n    {method} execute(self, requests): return []\n"
    with pytest.raises(ServeError, match=f"{word}.*use LANE 'thread'") as caught:
        await start(write(tmp_path, source), inline=True, decoupled=decoupled)
    assert caught.value.code is Code.UNSUPPORTED


@in_loop
async def test_it_is_finalized_on_its_own_thread(start, capfd):
    site = await start("script", inline=True)
    assert (await site.run(asked({"CODE": code("answer = 1")}))).error() is None
    await site.instance.close()
    assert "finalized" in capfd.readouterr().out
