"""The repository of both servers: Python models, for the judge has no others, and ensembles."""

from __future__ import annotations

from pathlib import Path

SOURCE = Path(__file__).parent / "judged_models" / "kinds.py"

DATATYPES = (
    *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FP16", "FP32", "FP64", "BF16", "BYTES"),
)

DECOUPLED = "model_transaction_policy { decoupled: true }\n"
_CONTROLS = (
    "control_input [\n"
    '  { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },\n'
    '  { name: "END" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] },\n'
    '  { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] },\n'
    '  { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: %s } ] }\n'
    "]\n"
)
_PRIORITIES = """
dynamic_batching {
  priority_levels: 3 default_priority_level: 2
  default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 5000000 allow_timeout_override: true }
}
"""

NOT_LOADED = ("unloaded", "override")
"""In the repository, and in no server when it starts."""


def tensor(kind: str, name: str, datatype: str, dims: str = "-1", more: str = "") -> str:
    """One ``input`` or ``output`` of a config."""
    word = "STRING" if datatype == "BYTES" else datatype
    return f'{kind} {{ name: "{name}" data_type: TYPE_{word} dims: [ {dims} ] {more} }}\n'


def _x_to_y(datatype: str, dims: str = "-1", more: str = "") -> str:
    return tensor("input", "X", datatype, dims) + tensor("output", "Y", datatype, dims, more)


def _addsub(more: str = "", label: str = "") -> str:
    given = "".join(tensor("input", f"INPUT{number}", "INT32", "4") for number in range(2))
    return given + tensor("output", "OUTPUT0", "INT32", "4", label) + tensor("output", "OUTPUT1", "INT32", "4") + more


def _sequence(strategy: str, correlation: str, batch: int) -> str:
    outputs = tensor("output", "Y", "INT32", "1") + tensor("output", "CONTROLS", "INT32", "2")
    outputs += tensor("output", "KEY", "BYTES", "1")
    batching = "sequence_batching {\n%s max_sequence_idle_microseconds: 5000000\n%s }\n"
    return (
        tensor("input", "X", "INT32", "1")
        + outputs
        + f"max_batch_size: {batch}\n"
        + batching % (strategy, _CONTROLS % correlation)
    )


def _types(optional: bool) -> str:
    more = "optional: true" if optional else ""
    pairs = [
        tensor("input", f"IN_{word}", word, more=more) + tensor("output", f"OUT_{word}", word) for word in DATATYPES
    ]
    return "".join(pairs)


def _generated() -> str:
    optional = "optional: true"
    return (
        tensor("input", "text", "BYTES")
        + tensor("input", "times", "INT32", "1", optional)
        + tensor("input", "scale", "FP32", "1", optional)
        + tensor("input", "loud", "BOOL", "1", optional)
        + tensor("output", "said", "BYTES", "1")
        + tensor("output", "numbers", "FP32")
    )


MODELS: dict[str, tuple[str, str]] = {
    "types": ("identity", _types(optional=True)),
    "rows": ("identity", _x_to_y("FP32", "4", 'label_filename: "labels.txt"') + "max_batch_size: 8\n"),
    "grid": ("identity", _x_to_y("INT64", "2, -1")),
    "open": ("identity", _x_to_y("FP32", "-1, -1")),
    "texts": ("upper", _x_to_y("BYTES") + tensor("output", "LENGTH", "INT32")),
    "text_rows": ("upper", _x_to_y("BYTES", "1") + tensor("output", "LENGTH", "INT32", "1") + "max_batch_size: 4\n"),
    "addsub": ("addsub", _addsub("max_batch_size: 8\ndynamic_batching { }\n", 'label_filename: "labels.txt"')),
    "levels": ("addsub", _addsub("max_batch_size: 8\n" + _PRIORITIES)),
    "counted": ("addsub", _addsub("max_batch_size: 8\n")),
    "optional": (
        "optional",
        tensor("input", "A", "INT32")
        + tensor("input", "B", "INT32", more="optional: true")
        + tensor("output", "Y", "INT32"),
    ),
    "partial": ("partial", _x_to_y("INT32") + tensor("output", "Z", "INT32")),
    "details": ("details", tensor("input", "X", "INT32", "1") + tensor("output", "Y", "BYTES", "1")),
    "faults": ("fault", _x_to_y("INT32", "1")),
    "slow": ("slow", _x_to_y("FP32", "1")),
    "asks": (
        "asks",
        tensor("input", "X", "INT32", "1, 4")
        + tensor("input", "MODEL", "BYTES", "1", "optional: true")
        + tensor("output", "Y", "INT32", "1, 4"),
    ),
    "direct": ("accumulate", _sequence("direct { }", "TYPE_UINT64", 4)),
    "oldest": ("accumulate", _sequence("oldest { max_candidate_sequences: 4 }", "TYPE_UINT64", 0)),
    "named": ("accumulate", _sequence("direct { }", "TYPE_STRING", 4)),
    "generated": ("generated", _generated()),
    "repeat": ("repeat", _x_to_y("INT32") + DECOUPLED),
    "cached": (
        "counted",
        _x_to_y("INT32") + tensor("output", "COUNT", "INT32", "1") + "response_cache { enable: true }\n",
    ),
    "versions": ("identity", _x_to_y("INT32") + "version_policy { all { } }\n"),
    "unloaded": ("identity", _x_to_y("INT32")),
}
"""Name to the function that answers, and the rest of the config."""

ENSEMBLES = ("chain", "failing", "stream", "override")
MODELS_SERVED = (*(name for name in (*MODELS, *ENSEMBLES) if name not in NOT_LOADED), "broken")
"""What the servers are told to load; ``broken`` they cannot."""


def write_judged(repository: Path) -> None:
    """Write all models into ``repository``."""
    for name, (kind, config) in MODELS.items():
        _write(repository, name, kind, config, versions=(1, 3) if name == "versions" else (1,))
    for name in ("rows", "addsub"):
        (repository / name / "labels.txt").write_text("zero\none\ntwo\n", encoding="utf-8")
    _write_ensembles(repository)
    broken = _write(repository, "broken", "identity", _x_to_y("INT32"))
    (broken / "1" / "model.py").write_text("raise ValueError('broken on purpose')\n", encoding="utf-8")


def _write(repository: Path, name: str, kind: str, config: str, versions: tuple[int, ...] = (1,)) -> Path:
    folder = repository / name
    for version in versions:
        (folder / str(version)).mkdir(parents=True)
        (folder / str(version) / "model.py").write_text(SOURCE.read_text(encoding="utf-8"), encoding="utf-8")
    said = f'parameters {{ key: "kind" value {{ string_value: "{kind}" }} }}\n'
    text = f'backend: "python"\ninstance_group [ {{ kind: KIND_CPU count: 1 }} ]\n{config}{said}'
    (folder / "config.pbtxt").write_text(text, encoding="utf-8")
    return folder


def _write_ensembles(repository: Path) -> None:
    given = "".join(tensor("input", name, "INT32", "4") for name in ("A", "B"))
    chain = given + tensor("output", "SUM", "INT32", "4") + tensor("output", "REST", "INT32", "4")
    _ensemble(repository, "chain", f"max_batch_size: 8\n{chain}", _step("addsub", A="INPUT0", B="INPUT1"), _second())
    _ensemble(repository, "failing", _x_to_y("INT32", "1"), _map("faults", {"X": "X"}, {"Y": "Y"}))
    _ensemble(repository, "stream", _x_to_y("INT32"), _map("repeat", {"X": "X"}, {"Y": "Y"}))
    _ensemble(repository, "override", _x_to_y("INT32"), _map("versions", {"X": "X"}, {"Y": "Y"}))


def _step(model: str, **given: str) -> str:
    return _map(model, {model_name: ours for ours, model_name in given.items()}, {"OUTPUT0": "SUM", "OUTPUT1": "MID"})


def _second() -> str:
    return _map("levels", {"INPUT0": "SUM", "INPUT1": "MID"}, {"OUTPUT1": "REST"})


def _map(model: str, given: dict[str, str], made: dict[str, str]) -> str:
    inputs = " ".join(f'input_map {{ key: "{key}" value: "{value}" }}' for key, value in given.items())
    outputs = " ".join(f'output_map {{ key: "{key}" value: "{value}" }}' for key, value in made.items())
    return f'step {{ model_name: "{model}" model_version: -1 {inputs} {outputs} }}\n'


def _ensemble(repository: Path, name: str, config: str, *steps: str) -> None:
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    more = DECOUPLED if name == "stream" else ""
    text = f'platform: "ensemble"\n{config}{more}ensemble_scheduling {{\n{"".join(steps)}}}\n'
    (folder / "config.pbtxt").write_text(text, encoding="utf-8")
