"""Checks of ``ensemble_scheduling`` that need no other model's config: the flow of its tensors."""

from __future__ import annotations

from typing import Any

from bident.model.hints import did_you_mean
from bident.model.subject import Subject


def check_ensemble(subject: Subject) -> None:
    """Check that an ensemble, and nothing else, declares steps, and that data flows through them."""
    proto = subject.proto
    if not proto.HasField("ensemble_scheduling"):
        if proto.platform == "ensemble":
            subject.refuse(
                f"ensemble scheduling must be set for ensemble {proto.name} whose platform is ensemble",
                "add ensemble_scheduling { step ... }",
            )
        return
    _check_declaration(subject)
    steps = proto.ensemble_scheduling.step
    for index, step in enumerate(steps):
        _check_step(subject, index, step)
    _check_written_once(subject, steps)
    _check_flow(subject, steps)
    for index, step in enumerate(steps):
        _check_version(subject, index, step)


def _check_declaration(subject: Subject) -> None:
    proto, name = subject.proto, subject.name
    if proto.platform != "ensemble":
        subject.refuse(
            f"ensemble scheduling cannot be set for model '{name}' whose platform is not ensemble",
            'write platform: "ensemble" and no backend',
        )
    if proto.instance_group:
        subject.refuse(f"instance group should not be specified for ensemble '{name}'", "remove instance_group")
    if proto.HasField("optimization"):
        subject.refuse(f"optimization should not be specified for ensemble '{name}'", "remove optimization")
    if proto.model_warmup:
        subject.refuse(f"model_warmup can not be specified for ensemble '{name}'", "remove model_warmup")
    if not proto.ensemble_scheduling.step:
        subject.refuse(f"must specify 'step' for ensemble '{name}'", "add one step per model")


def _check_step(subject: Subject, index: int, step: Any) -> None:
    for field in ("model_name", "input_map", "output_map"):
        if not getattr(step, field):
            subject.refuse(f"must specify '{field}' in step {index} of ensemble '{subject.name}'", f"add {field}")


def _check_version(subject: Subject, index: int, step: Any) -> None:
    """Version 0 is what a step gets that names none; Triton finds out later that it is not loaded."""
    if step.model_version != -1 and step.model_version < 1:
        subject.refuse(
            f"ensemble '{subject.name}' depends on '{step.model_name}' whose required version {step.model_version} "
            "is not loaded",
            f"write model_version: -1 (the newest) in step {index}",
        )


def _check_written_once(subject: Subject, steps: Any) -> None:
    inputs = {tensor.name for tensor in subject.proto.input}
    written: set[str] = set()
    for index, step in enumerate(steps):
        for tensor in step.output_map.values():
            if tensor in written:
                subject.refuse(
                    f"ensemble tensor '{tensor}' can appear in an output map only once for ensemble "
                    f"'{subject.name}' step {index}",
                    "give the second one another name",
                )
            if tensor in inputs:
                subject.refuse(
                    f"ensemble tensor '{tensor}' is an input of ensemble '{subject.name}' but step {index} writes it",
                    "give the step's output another name",
                )
            written.add(tensor)


def _check_flow(subject: Subject, steps: Any) -> None:
    proto, name = subject.proto, subject.name
    read = {tensor for step in steps for tensor in step.input_map.values()}
    named = read.union(tensor for step in steps for tensor in step.output_map.values())
    for tensor in proto.input:
        if tensor.name not in named:
            subject.refuse(
                f"ensemble input '{tensor.name}' for ensemble {name}' is not used", _unused(subject, tensor.name, steps)
            )
    ready = _reachable({tensor.name for tensor in proto.input}, steps)
    outputs = [tensor.name for tensor in proto.output]
    for output in outputs:
        if output not in named:
            subject.refuse(
                f"ensemble output '{output}' for ensemble {name}' is not used", did_you_mean(output, sorted(named))
            )
        if output not in ready:
            _refuse_unwritten(subject, output, ready, steps)
    for tensor in sorted(named.difference(outputs)):
        if tensor not in ready or tensor not in read:
            subject.refuse(
                f"ensemble tensor '{tensor}' is unused in ensemble '{name}'",
                "map it to a step's input, or declare it as an output"
                if tensor in ready
                else "no step writes it and it is no input of the ensemble: correct its name",
            )


def _unused(subject: Subject, name: str, steps: Any) -> str:
    """What has probably gone wrong where no step takes the input ``name``."""
    inputs = {tensor.name for tensor in subject.proto.input}
    given = inputs.union(tensor for step in steps for tensor in step.output_map.values())
    for index, step in enumerate(steps):
        for key, tensor in sorted(step.input_map.items()):
            if tensor not in given:
                where = f"step {index} ('{step.model_name}') takes '{tensor}' for its input '{key}'"
                return f"{where}, which nothing gives; {did_you_mean(tensor, sorted(given))}"
    ready = _reachable(inputs, steps)
    stuck = [
        f"step {index} ('{step.model_name}')"
        for index, step in enumerate(steps)
        if not ready.issuperset(step.input_map.values())
    ]
    if stuck:
        cure = f"let one of them take '{name}'"
        return f"{' and '.join(stuck)} {'wait for each other' if len(stuck) > 1 else 'waits for itself'}: {cure}"
    return "map it to an input of a step, or remove it"


def _reachable(ready: set[str], steps: Any) -> set[str]:
    """The tensors that have a value once every step that can run has run."""
    waiting = list(steps)
    while runnable := [step for step in waiting if ready.issuperset(step.input_map.values())]:
        ready = ready.union(tensor for step in runnable for tensor in step.output_map.values())
        waiting = [step for step in waiting if step not in runnable]
    return ready


def _refuse_unwritten(subject: Subject, output: str, ready: set[str], steps: Any) -> None:
    """Name the tensor at the root of the trouble: the last one upstream that nobody can provide."""
    writers = {tensor: step for step in steps for tensor in step.output_map.values()}
    root, seen = output, {output}
    while root in writers:
        missing = sorted(set(writers[root].input_map.values()) - ready - seen)
        if not missing:
            break
        root = missing[0]
        seen.add(root)
    known = sorted(ready.union(writers) - {root})
    message = f"output '{output}' for ensemble '{subject.name}' is not written"
    if root != output:
        message += f": at least one of its depending tensors, '{root}', is not connected"
    cure = did_you_mean(root, known) if root not in writers else "its steps wait for each other: break the circle"
    subject.refuse(message, cure)
