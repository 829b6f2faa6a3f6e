"""Metrics that Python models make themselves, on the page that everybody scrapes."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from asking import Asker, x
from model_folders import x_to_y
from python_folders import ECHO, write_python
from serving import Launch, TensorServer, eventually

COUNTS = """
    def initialize(self, args):
        def family(name, kind):
            return pb_utils.MetricFamily(name=name, description=f"what {{name}} means", kind=kind)
        labels = {{"model": args["model_name"]}}
        self.counter = family("shared_requests", pb_utils.MetricFamily.COUNTER).Metric(labels=labels)
        self.gauge = family("{name}_level", pb_utils.MetricFamily.GAUGE).Metric(labels={{"where": 'a "b"'}})
        self.histogram = family("{name}_size", pb_utils.MetricFamily.HISTOGRAM).Metric(labels={{}}, buckets=[1.0, 10.0])

    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        for array in found:
            self.counter.increment(1)
            self.gauge.set(float(array[0]))
            self.histogram.observe(float(array[0]))
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", array)]) for array in found]
"""


@pytest.fixture
def server(launch: Launch, tmp_path: Path) -> TensorServer:
    repository = tmp_path / "repository"
    for name in ("one", "two"):
        write_python(repository, name, COUNTS.format(name=name))
    for family in ("nv_inference_count", "not a name"):
        make = f"pb_utils.MetricFamily(name={family!r}, description='', kind=pb_utils.MetricFamily.COUNTER)"
        write_python(
            repository, f"bad_{family[:2]}", f"    def initialize(self, args):\n        {make}\n{ECHO}", x_to_y()
        )
    return launch(repository, "--model-control-mode=explicit", "--load-model=one", "--load-model=two")


def page(server: TensorServer) -> str:
    return httpx.get(f"http://127.0.0.1:{server.metrics_port}/metrics", trust_env=False).text


def test_models_metrics_end_the_page_and_go_with_them(server: TensorServer) -> None:
    ask = Asker(server.port)
    for model, number in (("one", 5), ("one", 20), ("two", 1)):
        assert ask.infer(model, x("FP32", [number])).data() == [number]

    eventually(lambda: 'two_level{where="a \\"b\\""} 1\n' in page(server), "what the last request changed is there")
    text = page(server)
    lines = text.splitlines()
    assert text.endswith("\n")
    assert lines.count("# TYPE shared_requests counter") == 1
    assert lines.count("# HELP shared_requests what shared_requests means") == 1
    for line in (
        'shared_requests{model="one"} 2',
        'shared_requests{model="two"} 1',
        "# TYPE one_level gauge",
        'one_level{where="a \\"b\\""} 20',
        "# TYPE one_size histogram",
        'one_size_bucket{le="1"} 0',
        'one_size_bucket{le="10"} 1',
        'one_size_bucket{le="+Inf"} 2',
        "one_size_sum 25",
        "one_size_count 2",
    ):
        assert lines.count(line) == 1, (line, text)
    last_of_ours = max(number for number, line in enumerate(lines) if line.startswith(("nv_", "# TYPE nv_")))
    assert last_of_ours < lines.index("# TYPE shared_requests counter")

    assert ask.unload("one").status == 200
    eventually(lambda: "one_" not in page(server), "the model's metrics have gone")
    assert 'shared_requests{model="one"}' not in page(server)
    assert 'shared_requests{model="two"} 1\n' in page(server)
    assert ask.unload("two").status == 200
    eventually(lambda: "shared_requests" not in page(server), "the last model's have gone too")


def test_names_that_cannot_be_a_models_are_refused(server: TensorServer) -> None:
    ask = Asker(server.port)
    ask.load("bad_nv").refused(
        "Error when creating MetricFamily", "'nv_inference_count'", "names with nv_ are the server's"
    )
    ask.load("bad_no").refused("'not a name' is no name for a metric")
    assert page(server).count("# TYPE nv_inference_count ") == 1
