"""The static side of an ensemble: which step reads and writes which tensor, and what a request needs of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bident.model.config import ModelConfig

_MOST_PLANS = 64
"""Clients choose outputs freely; more combinations than this are not remembered."""


class Plan:
    """How the outputs of a request come about.

    ``needs`` has, for each step that takes part, the number of different tensors it reads;
    ``readers`` the steps that read a tensor; ``once`` are the tensors that nobody needs any more when
    one input has got them.
    """

    def __init__(self, outputs: frozenset[str], needed: dict[int, Sequence[str]]) -> None:
        """``needed``: what each step that takes part reads, for each of its inputs."""
        self.outputs = outputs
        self.needs = {index: len(set(read)) for index, read in needed.items()}
        uses = Counter(tensor for read in needed.values() for tensor in read)
        self.once = frozenset(tensor for tensor, count in uses.items() if count == 1) - outputs
        self.readers = {tensor: tuple(index for index, read in needed.items() if tensor in read) for tensor in uses}


class Planner:
    """The plans of one ensemble."""

    def __init__(self, config: ModelConfig) -> None:
        self._steps = config.steps
        self._writer = {tensor: index for index, step in enumerate(self._steps) for tensor in step.outputs.values()}
        self._all = self._make(frozenset(config.outputs))
        self._some: dict[tuple[str, ...], Plan] = {}

    def plan(self, outputs: list[str] | None) -> Plan:
        """The plan for ``outputs`` (None: all): steps that contribute nothing to them are left out, as by Triton."""
        if outputs is None:
            return self._all
        key = tuple(outputs)
        plan = self._some.get(key)
        if plan is None:
            if len(self._some) >= _MOST_PLANS:
                self._some.clear()
            plan = self._some[key] = self._make(frozenset(outputs))
        return plan

    def _make(self, outputs: frozenset[str]) -> Plan:
        needed: set[int] = set()
        wanted = list(outputs)
        while wanted:
            index = self._writer.get(wanted.pop())
            if index is not None and index not in needed:
                needed.add(index)
                wanted.extend(self._steps[index].inputs.values())
        return Plan(outputs, {index: list(self._steps[index].inputs.values()) for index in sorted(needed)})


def fitted(dims: tuple[int, ...], *, batching: bool, rows: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which a tensor of ``shape`` goes to a reader that declares ``dims``.

    ``rows`` is the batch size of whoever made it, 0 if that does not batch; ``batching`` is whether
    the reader does. Only where one does and the other does not, a batch dimension of 1 is added or
    dropped, and only if that makes it fit (Triton's ``ensemble_scheduler.cc``, ReshapeTensorDims).
    """
    if batching == (rows > 0):
        return shape
    fits = len(shape) == len(dims) and all(dim in (-1, size) for dim, size in zip(dims, shape, strict=True))
    if batching:
        return (1, *shape) if fits else shape
    return shape[1:] if rows == 1 and not fits else shape
