"""What a real Triton and Bident are both asked of ``sequence_repository.write_sequences``, in this order.

``python tests/e2e/sequence_exchanges.py PORT`` asks the server on that port and prints its answers, as they are
kept for Triton in ``data/sequence_answers.json``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from asking import Asker, tensor
from python_exchanges import Exchange, told

ANSWERS = Path(__file__).parent / "data" / "sequence_answers.json"

LARGEST = 2**64 - 1


def step(model: str, key: Any, value: Any, *, flags: str = "", rows: int = 1, **more: Any) -> Exchange:
    """One request of the sequence ``key``; ``flags`` has S for START, E for END."""
    shape = [1] if model == "single" else [rows, 1]
    parameters: dict[str, Any] = {} if key is None else {"sequence_id": key}
    if "S" in flags:
        parameters["sequence_start"] = True
    if "E" in flags:
        parameters["sequence_end"] = True
    given = [tensor("X", "INT32", shape, [value] * rows)]
    document: dict[str, Any] = {"inputs": given, "parameters": parameters, **more}
    return Exchange(f"/v2/models/{model}/infer", document)


def _life(model: str, *keys: Any) -> dict[str, Exchange]:
    """Each of ``keys`` begins, goes on and ends, by turns."""
    flags = ("S", "", "", "E")
    return {
        f"{model} {key!r}: {turn}": step(model, key, 10 * turn + place, flags=flags[turn])
        for turn in range(4)
        for place, key in enumerate(keys)
    }


REQUESTS: dict[str, Exchange] = {
    "config of direct": Exchange("/v2/models/direct/config"),
    "config of oldest": Exchange("/v2/models/oldest/config"),
    "config of single": Exchange("/v2/models/single/config"),
    "config of again": Exchange("/v2/models/again/config"),
    "metadata of direct": Exchange("/v2/models/direct"),
    **_life("direct", 1, 2, LARGEST),
    **_life("oldest", 3, 1, 2),
    **_life("single", 7),
    **_life("plain", 1, "1"),
    **_life("plain", "é"),
    "no id": step("direct", None, 1, flags="S"),
    "id 0": step("direct", 0, 1, flags="S"),
    "id ''": step("plain", "", 1, flags="S"),
    "id null": step("direct", None, 1, flags="S", id="r7"),
    "no START": step("direct", 5, 1),
    "no START, text": step("plain", "nobody", 1),
    "END without START": step("direct", 5, 1, flags="E"),
    "two rows": step("direct", 5, 1, flags="S", rows=2),
    "START and END in one": step("direct", 6, 3, flags="SE"),
    "after both in one": step("direct", 6, 4),
    "START": step("direct", 8, 5, flags="S"),
    "START again": step("direct", 8, 6, flags="S"),
    "after START again": step("direct", 8, 7),
    "an error on the way": step("direct", 8, -1),
    "after an error": step("direct", 8, 1, flags="E"),
    "after the end": step("direct", 8, 1),
    "a long id": step("plain", "x" * 128, 1, flags="SE"),
    "too long an id": step("plain", "x" * 129, 1, flags="SE"),
    "too large an id": step("plain", 2**64, 1, flags="SE"),
    "a negative id": step("plain", -1, 1, flags="SE"),
    "a control sent by the client": Exchange(
        "/v2/models/direct/infer",
        {
            "inputs": [tensor("X", "INT32", [1, 1], [1]), tensor("START", "INT32", [1, 1], [1])],
            "parameters": {"sequence_id": 9, "sequence_start": True},
        },
    ),
    "only one output": step("oldest", 9, 1, flags="SE", outputs=[{"name": "Y"}]),
    "again: no id": step("again", None, 3),
    "again: at once": step("again", None, 0),
    "again: an id": step("again", 77, 2, flags="S"),
    "again: the same id": step("again", 77, 1, flags="S"),
    "again: an id without START": step("again", 78, 1),
}


def stats(ask: Asker, model: str) -> dict[str, Any]:
    """The counts of a model's figures."""
    (found,) = ask.get(f"/v2/models/{model}/stats").json["model_stats"]
    return {
        "inferences": found["inference_count"],
        "executions": found["execution_count"],
        **{name: found["inference_stats"][name]["count"] for name in ("success", "fail", "queue", "compute_infer")},
        "batches": {str(one["batch_size"]): one["compute_infer"]["count"] for one in found["batch_stats"]},
    }


def answers(ask: Asker) -> dict[str, Any]:
    """What the server answers to all of it, and its figures afterwards."""
    said = {name: told(exchange.send(ask)) for name, exchange in REQUESTS.items()}
    return {**said, "stats": {model: stats(ask, model) for model in ("direct", "oldest", "single", "again")}}


if __name__ == "__main__":
    print(json.dumps(answers(Asker(int(sys.argv[1]))), ensure_ascii=False, indent=1, sort_keys=True))  # noqa: T201 - its purpose
