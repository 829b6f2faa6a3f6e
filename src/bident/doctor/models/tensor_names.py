"""Names of tensors that configuration and model file do not share."""

from __future__ import annotations

from collections.abc import Iterator

from bident.backends.onnx.check import scheduler_inputs, state_outputs
from bident.doctor.models.case import Case, ModelCheck, Seen
from bident.doctor.models.config_edit import Step, config_fix, quoted
from bident.doctor.models.onnx_file import newest_onnx
from bident.doctor.models.tensors import SIDES
from bident.model.hints import closest, listed


class TensorNames(ModelCheck):
    """A tensor is called otherwise in the file."""

    name = "tensor-names"
    title = "The configuration names a tensor that the model file does not have"
    cause = "Names must be those of the model file, letter by letter; exporters choose them as they like"

    def look(self, case: Case) -> Iterator[Seen]:
        file = newest_onnx(case)
        if case.proto is None or case.config is None or file is None:
            return
        signature = file.signature
        known = {"input": {**signature.inputs, **signature.initializers}, "output": signature.outputs}
        claimed = {"input": set(scheduler_inputs(case.config)), "output": set(state_outputs(case.config))}
        for side in SIDES:
            declared = [tensor.name for tensor in getattr(case.proto, side)]
            free = [name for name in known[side] if name not in declared and name not in claimed[side]]
            for index, name in enumerate(declared):
                if name not in known[side]:
                    yield self._seen(case, side, index, free, list(known[side]))

    def _seen(self, case: Case, side: str, index: int, free: list[str], known: list[str]) -> Seen:
        assert case.proto is not None
        declared = getattr(case.proto, side)
        name = declared[index].name
        strangers = sum(tensor.name not in known for tensor in declared)
        # Where one is wrong and one is left, they belong together however little they look alike.
        meant = free[0] if len(free) == strangers == 1 else closest(name, free)
        hint = f"did you mean '{meant}'?" if meant else f"the {side}s there are {listed(known)}"
        fix = None
        if meant:
            fix = config_fix(f"call it '{meant}'", case.config_path, [Step("name", quoted(meant), ((side, index),))])
        return Seen(
            case.config_path,
            f"{side} '{name}' is not in the model file; {hint}",
            f"write name: \"{meant or '...'}\" and let clients use it, or export the model with the name '{name}'",
            fix=fix,
        )
