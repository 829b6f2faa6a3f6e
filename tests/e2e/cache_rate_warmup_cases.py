"""Models with a response cache, warmup samples or rate limits, and what a server is asked about them.

``python tests/e2e/cache_rate_warmup_cases.py FOLDER`` (from the project's folder, with a real Triton installed) takes
down in ``data/triton_2_51_cache_rate_warmup.json`` what that answers; models are written to ``FOLDER``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from asking import Answer, Asker
from model_folders import write_model

ANSWERS = Path(__file__).parent / "data" / "triton_2_51_cache_rate_warmup.json"

UNLUCKY = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        return [self.answer(array) for array in found]

    def answer(self, array):
        if array.dtype != object and array.reshape(-1)[0] == 13:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("unlucky"))
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", array)])
"""
"""Y = X, but for rows that begin with 13."""

CACHE = "response_cache { enable: true }"
_STEP = (
    'step { model_name: "plain" model_version: -1 '
    'input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" } }'
)


def _numbers(datatype: str = "FP32") -> str:
    return (
        f'input {{ name: "X" data_type: TYPE_{datatype} dims: [ 2 ] }}\n'
        f'output {{ name: "Y" data_type: TYPE_{datatype} dims: [ 2 ] }}\n'
    )


def _python(more: str = "", datatype: str = "FP32") -> str:
    return f'backend: "python"\nmax_batch_size: 8\n{_numbers(datatype)}{more}'


def _sample(data: str = "zero_data: true", *, size: int = 1, datatype: str = "FP32", dims: str = "2") -> str:
    given = f'inputs {{ key: "X" value {{ data_type: TYPE_{datatype} dims: [ {dims} ] {data} }} }}'
    return f'model_warmup {{ name: "s" batch_size: {size} {given} }}'


def _file(**more: Any) -> str:
    return _sample('input_data_file: "x"', **more)


CACHED = {
    "plain": _python(),
    "cached": _python(CACHE),
    "cached_batches": _python(f"{CACHE} dynamic_batching {{ }}"),
    "cached_ensemble": f'platform: "ensemble"\nmax_batch_size: 8\n{_numbers()}{CACHE}\n'
    f"ensemble_scheduling {{ {_STEP} }}",
}
"""Models that are asked the same again and again."""

WARM: dict[str, tuple[str, bytes | None]] = {
    "zeros": (_python(_sample(size=3).replace("batch_size", "count: 2 batch_size")), None),
    "random": (_python(_sample("random_data: true")), None),
    "skipped": (_python(_sample(size=0)), None),
    "wrong_datatype": (_python(_sample(datatype="INT32")), None),
    "wrong_shape": (_python(_sample(dims="3")), None),
    "variable_shape": (_python(_sample(dims="-1")), None),
    "no_data": (_python(_sample("")), None),
    "not_even_zeros": (_python(_sample("zero_data: false")), None),
    "no_file": (_python(_file()), None),
    "short_file": (_python(_file()), b"1234"),
    "long_file": (_python(_file()), b"\0\0\x80?" * 5),
    "unlucky": (_python(_file(size=2)), b"\0\0\x50A" * 2),
    "no_input": (_python('model_warmup { name: "s" batch_size: 1 }'), None),
    "strings": (_python(_sample(datatype="STRING"), "STRING"), None),
    "recorded_strings": (_python(_file(datatype="STRING"), "STRING"), b"\2\0\0\0hi\0\0\0\0"),
    "cut_strings": (_python(_file(datatype="STRING"), "STRING"), b"\2\0\0\0hi\0\0\0"),
    "two_instances": (_python(f"instance_group {{ count: 2 kind: KIND_CPU }} {_sample()}"), None),
    "sequence": (_python(f"sequence_batching {{ }} {_sample()}"), None),
}
"""Models with a warmup sample, and what its file holds."""


def _limited(*needs: str) -> str:
    told = " ".join(f"resources {{ {need} }}" for need in needs)
    return _python(f"instance_group {{ count: 1 kind: KIND_CPU rate_limiter {{ {told} priority: 2 }} }}")


LIMITED = {
    "enough": _limited('name: "R" count: 3'),
    "too_much": _limited('name: "R" count: 4'),
    "too_much_of_all": _limited('name: "G" count: 5 global: true'),
    "nowhere": _limited('name: "Q" count: 1'),
    "another_case": _limited('name: "r" count: 1'),
    "other_device": _limited('name: "D" count: 1'),
    "of_all": _limited('name: "D" count: 2 global: true'),
    "of_one": _limited('name: "D" count: 2'),
    "no_need": _python(),
}
"""Models that need resources, loaded in this order."""

CACHE_FLAGS = ("--cache-config=local,size=1048576",)
LIMIT_FLAGS = (
    "--rate-limit=execution_count",
    "--rate-limit-resource=R:3",
    "--rate-limit-resource=G:4",
    "--rate-limit-resource=D:2:7",
)
EXPLICIT = ("--model-control-mode=explicit", "--strict-readiness=false")


def write(repository: Path) -> None:
    """All models, to be loaded by name."""
    for name, config in {**CACHED, **LIMITED}.items():
        write_model(repository, name, config, **({} if "ensemble" in config else {"model_py": UNLUCKY}))
    for name, (config, recorded) in WARM.items():
        folder = write_model(repository, name, config, model_py=UNLUCKY)
        if recorded is not None:
            (folder / "warmup").mkdir()
            (folder / "warmup" / "x").write_bytes(recorded)


def _load(ask: Asker, name: str) -> Answer:
    return ask.post(f"/v2/repository/models/{name}/load", {})


def figures(ask: Asker, name: str) -> dict[str, Any]:
    """What a model has counted, without the times."""
    (stats,) = ask.get(f"/v2/models/{name}/stats").json["model_stats"]
    counts = {key: told["count"] for key, told in stats["inference_stats"].items()}
    sizes = {str(batch["batch_size"]): batch["compute_infer"]["count"] for batch in stats["batch_stats"]}
    return {**counts, "inferences": stats["inference_count"], "executions": stats["execution_count"], "sizes": sizes}


def ask_cached(ask: Asker) -> dict[str, Any]:
    """For each model its answers to some rows, and then its figures."""
    told: dict[str, Any] = {}
    for name in CACHED:
        assert _load(ask, name).status == 200
    for name in [name for name in CACHED if name != "plain"]:
        rows = [[1, 2], [1, 2], [3, 4], [1, 2], [1, 2, 1, 2], [1, 2, 1, 2]]
        answers = [_infer(ask, name, data) for data in rows]
        told[name] = {
            "answers": [[answer.status, answer.json["outputs"]] for answer in answers],
            "figures": figures(ask, name),
        }
    return told


def _infer(ask: Asker, name: str, data: Sequence[float]) -> Answer:
    given = {"name": "X", "shape": [len(data) // 2, 2], "datatype": "FP32", "data": list(data)}
    return ask.post(f"/v2/models/{name}/infer", {"inputs": [given]})


def load_warm(ask: Asker, repository: Path) -> dict[str, Any]:
    """For each model what its load answered, and its figures where it went well."""
    return {name: _loaded(ask, name, repository) for name in WARM}


def load_limited(ask: Asker, repository: Path) -> dict[str, Any]:
    """The same for those that need resources."""
    return {name: _loaded(ask, name, repository) for name in LIMITED}


def _loaded(ask: Asker, name: str, repository: Path) -> dict[str, Any]:
    answer = _load(ask, name)
    if answer.status == 200:
        return {"status": 200, "figures": figures(ask, name)}
    return {"status": answer.status, "error": answer.json["error"].replace(str(repository), "REPOSITORY")}


def cache_metrics(page: str) -> Mapping[str, float]:
    """The samples of the per-model cache metrics that count."""
    lines = [line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("nv_cache_num_")]
    return {name: float(value) for name, value in lines if "_per_model{" in name}


def _take_down(folder: Path) -> None:
    from benchmarks.peers.triton import RealTriton

    repository = folder / "repository"
    write(repository)
    kept: dict[str, Any] = {}
    for number, flags in enumerate((CACHE_FLAGS, LIMIT_FLAGS)):
        with RealTriton(repository, folder / f"triton{number}.log", *EXPLICIT, *flags) as server:
            ask = Asker(server.port)
            if flags is CACHE_FLAGS:
                kept["cached"] = ask_cached(ask)
                kept["metrics"] = cache_metrics(Asker(server.metrics_port).get("/metrics").body.decode())
                kept["warm"] = load_warm(ask, repository)
            else:
                kept["limited"] = load_limited(ask, repository)
            ask.close()
    sections = [f"{json.dumps(key)}: {{\n{_lines(told)}\n}}" for key, told in sorted(kept.items())]
    ANSWERS.write_text("{" + ",\n".join(sections) + "}\n", encoding="utf-8")


def _lines(told: Mapping[str, Any]) -> str:
    return ",\n".join(f" {json.dumps(name)}: {json.dumps(value, sort_keys=True)}" for name, value in told.items())


if __name__ == "__main__":
    _take_down(Path(sys.argv[1]))
