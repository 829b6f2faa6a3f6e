"""Two workers against one, on a model that is busy with a core for longer than the server is with a request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks import wrk
from benchmarks.plan import Plan
from benchmarks.rounds import interleave
from benchmarks.servers import Bident, Server
from benchmarks.table import Bar, Row, compared

TITLE = "Several workers"
MODEL = "busy"
CONNECTIONS = 16
"""Enough that neither worker is ever without a request, however the system spreads them."""
_ROWS, _SIZE, _LAYERS = 64, 512, 3
BODY = b'{"inputs":[{"name":"X","shape":[1,8],"datatype":"FP32","data":[1,2,3,4,5,6,7,8]}]}'

_CONFIG = """
backend: "onnxruntime"
input  [ { name: "X", data_type: TYPE_FP32, dims: [ 1, 8 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ 1 ] } ]
instance_group [ { count: 1, kind: KIND_CPU } ]
parameters [
  { key: "intra_op_thread_count", value: { string_value: "1" } },
  { key: "LANE", value: { string_value: "inline" } }
]
"""


def run(plan: Plan) -> list[Row]:
    """Requests per second of both together."""
    repository = plan.workspace / "workers_repository"
    write_model(repository)
    body = plan.workspace / "busy.json"
    body.write_bytes(BODY)

    def rate(server: Server) -> Callable[[], float]:
        url = server.url(f"/v2/models/{MODEL}/infer")
        return lambda: wrk.run(url, body, connections=CONNECTIONS, seconds=plan.seconds).per_second

    with (
        Bident(repository, plan.log("workers_two"), "--workers=2") as two,
        Bident(repository, plan.log("workers_one")) as one,
    ):
        ours, alone = interleave(plan.rounds, rate(two), rate(one))
    name = f"two workers, {CONNECTIONS} connections, a model of one busy core"
    return [compared(name, "/s", Bar(at_least=1.6), ours, "one worker", alone)]


def write_model(repository: Path) -> None:
    """A model that multiplies matrices for a millisecond or two, whatever it is asked."""
    folder = repository / MODEL / "1"
    folder.mkdir(parents=True)
    (folder.parent / "config.pbtxt").write_text(_CONFIG)
    random = np.random.default_rng(0)
    spread = random.standard_normal((8, _SIZE), dtype=np.float32)
    weights = random.standard_normal((_SIZE, _SIZE), dtype=np.float32) / _SIZE
    rows = random.standard_normal((_ROWS, _SIZE), dtype=np.float32)
    nodes = [helper.make_node("MatMul", ["X", "spread"], ["one"]), helper.make_node("Add", ["one", "rows"], ["h0"])]
    nodes += [helper.make_node("MatMul", [f"h{layer}", "weights"], [f"h{layer + 1}"]) for layer in range(_LAYERS)]
    nodes.append(helper.make_node("ReduceSum", [f"h{_LAYERS}"], ["sum"], keepdims=0))
    nodes.append(helper.make_node("Reshape", ["sum", "shape"], ["Y"]))
    constants = {"spread": spread, "weights": weights, "rows": rows, "shape": np.array([1], np.int64)}
    graph = helper.make_graph(
        nodes,
        MODEL,
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [1])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, str(folder / "model.onnx"))
