"""Model folders around the sources in ``python_models``, such as a real Triton takes as well."""

from __future__ import annotations

from pathlib import Path

from model_folders import DATATYPES, declared, parameters, write_model

_SOURCES = Path(__file__).parent / "python_models"

SCRIPT_OUTPUTS = (
    ("ANSWER", "BYTES", "[ 1 ]"),
    ("F", "FP32", "[ 2 ]"),
    ("I", "INT8", "[ 2 ]"),
    ("V", "FP32", "[ -1 ]"),
    ("S", "BYTES", "[ -1 ]"),
    ("D", "FP64", "[ 2 ]"),
)


def source(name: str) -> str:
    """The text of one of ``python_models``."""
    return (_SOURCES / f"{name}.py").read_text(encoding="utf-8")


def write_python(repository: Path, name: str, model: str, config: str | None = None) -> Path:
    """A folder of the Python model ``model``; ``config`` says everything but the backend (None: no config at all)."""
    text = None if config is None else f'backend: "python"\n{config}'
    return write_model(repository, name, text, model_py=source(model))


def write_script(repository: Path, name: str, more: str = "", **values: str) -> Path:
    """A model that runs what it is sent; ``values`` are parameters (INITIALIZE, FINALIZE: Python to run then)."""
    return write_python(repository, name, "script", script_config(more, **values))


def script_config(more: str = "", **values: str) -> str:
    """The config of a script model but for its backend."""
    outputs = "".join(declared("output", *output) for output in SCRIPT_OUTPUTS)
    escaped = {
        key: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for key, value in values.items()
    }
    return declared("input", "CODE", "BYTES", "[ 1 ]") + outputs + more + "\n" + parameters(**escaped)


DECOUPLED = "model_transaction_policy { decoupled: true }"


def one_instance(count: int = 1) -> str:
    return f"instance_group [ {{ kind: KIND_CPU count: {count} }} ]"


def write_compared(repository: Path) -> None:
    """The repository that both servers were asked about: see ``python_exchanges``."""
    write_script(repository, "script")
    write_script(repository, "peer")
    write_script(repository, "streams", DECOUPLED)
    types = "".join(
        declared("input", f"IN_{word}", word, more="optional: true") + declared("output", f"OUT_{word}", word)
        for word in DATATYPES
    )
    write_python(repository, "types", "types", types)
    rows = declared("input", "X", dims="[ 2 ]") + declared("output", "Y", dims="[ 2 ]")
    rows += declared("output", "ROWS", "INT32", "[ 1 ]")
    write_python(repository, "rows", "rows", rows + "max_batch_size: 4 dynamic_batching { }")
    write_python(repository, "completed", "completed")
    rejects = declared("input", "X", "INT32", "[ 1 ]") + declared("output", "Y", "INT32", "[ 1 ]")
    write_python(repository, "rejects", "rejects", rejects)
