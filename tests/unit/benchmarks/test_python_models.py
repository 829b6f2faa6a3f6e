"""The Python models of the benchmarks: one set of files for both servers, but for the lane."""

from benchmarks import python_memory_bench, python_models


def config(repository, name):
    return (repository / name / "config.pbtxt").read_text()


def test_the_thread_lane_is_all_that_differs(tmp_path):
    python_models.identity(tmp_path, "plain", dims=4, max_batch_size=64)
    python_models.identity(tmp_path, "thread", dims=4, max_batch_size=64, lane="thread")
    plain, thread = config(tmp_path, "plain"), config(tmp_path, "thread")
    assert thread.removeprefix(plain) == 'parameters { key: "LANE" value: { string_value: "thread" } }\n'
    sources = [(tmp_path / name / "1" / "model.py").read_bytes() for name in ("plain", "thread")]
    assert sources == [(python_models.MODELS / "identity.py").read_bytes()] * 2


def test_only_a_model_that_may_batch_asks_for_batching(tmp_path):
    python_models.identity(tmp_path, "single", dims=-1)
    python_models.identity(tmp_path, "batched", dims=-1, max_batch_size=8)
    assert "dynamic_batching" not in config(tmp_path, "single")
    assert "dynamic_batching { }" in config(tmp_path, "batched")


def test_sizes_are_mostly_small_and_reach_megabytes():
    sizes = [4 * rows * width for rows, width in python_memory_bench.sizes(20_000)]
    assert min(sizes) == 4
    assert max(sizes) > 3_000_000
    assert sorted(sizes)[len(sizes) // 2] < 10_000
    assert python_memory_bench.sizes(100) == python_memory_bench.sizes(100), "every run sends the same"
