"""Names of tensors in a ``model.py``, held against its configuration."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from bident.doctor.check import Weight
from bident.doctor.models.case import Case, ModelCheck, Seen
from bident.doctor.models.python_source import PythonSource, python_sources
from bident.model.hints import closest


class PythonTensorNames(ModelCheck):
    """A name in the code that is nearly one of the configuration's."""

    name = "python-tensor-names"
    title = "model.py reads or makes a tensor under a name that the configuration does not have"
    cause = "Names must be those of config.pbtxt, letter by letter: get_input_tensor_by_name gives None for any other"

    def look(self, case: Case) -> Iterator[Seen]:
        if case.proto is None:
            return
        declared = {
            "input": [tensor.name for tensor in case.proto.input],
            "output": [tensor.name for tensor in case.proto.output],
        }
        for source in python_sources(case):
            used = _names(source)
            for side, names in declared.items():
                unused = [name for name in names if name not in used[side]]
                for name, line in used[side].items():
                    # Other names can be those of other models that it asks.
                    meant = closest(name, unused) if name not in names else None
                    if meant:
                        yield Seen(
                            source.path,
                            f"line {line}: {side} '{name}' is not in config.pbtxt; did you mean '{meant}'?",
                            f"write '{meant}' there, or name: \"{name}\" in config.pbtxt",
                            Weight.RISK,
                        )


def _names(source: PythonSource) -> dict[str, dict[str, int]]:
    """Literal names of inputs that are read and of outputs that are made, with their lines."""
    found: dict[str, dict[str, int]] = {"input": {}, "output": {}}
    for node in ast.walk(source.tree) if source.tree else ():
        if not isinstance(node, ast.Call):
            continue
        function = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        side, place = {"get_input_tensor_by_name": ("input", 1), "Tensor": ("output", 0)}.get(function, ("", 0))
        argument = node.args[place] if side and len(node.args) > place else None
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            found[side].setdefault(argument.value, node.lineno)
    return found
