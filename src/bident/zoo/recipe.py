"""What a sample model is: a recipe that writes a model folder, and questions with known answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray

from bident.errors import Code, ServeError
from bident.zoo import folder as model_folder

Tensors: TypeAlias = Mapping[str, NDArray[Any]]
"""Tensors by name, batch dimension first."""

Report: TypeAlias = Callable[[str, float | None], None]
"""Told what a build is doing, and how far that step is (0 to 1, None: unknown)."""


@dataclass(frozen=True)
class Facts:
    """What only a build can know, kept in the model folder.

    ``synthetic``: the weights are seeded random numbers, not a trained model. ``origin``: where the
    weights come from and under which licence. ``expected``: JSON values that answers must agree with.
    """

    synthetic: bool
    origin: str
    expected: dict[str, Any]


@dataclass(frozen=True)
class Question:
    """A real request and how to judge its answer.

    ``inputs`` makes the tensors to send. ``check`` takes the answer's tensors and returns the answer
    in a few words, or raises ServeError when it is wrong (see :func:`wrong_answer`).
    """

    summary: str
    inputs: Callable[[], Tensors]
    check: Callable[[Tensors], str]


@dataclass(frozen=True)
class BuildResult:
    """``fresh`` is False when the folder was there already; ``seconds`` is what the call took."""

    folder: Path
    facts: Facts
    fresh: bool
    seconds: float


@dataclass(frozen=True)
class Recipe:
    """A sample model. ``version`` grows when what ``write`` writes changes: folders are then rebuilt.

    ``write`` fills an empty folder with ``config.pbtxt``, ``1/<model file>`` and labels. Where
    ``may_be_synthetic`` is set, seeded weights stand in for weights that cannot be had;
    ``has_weights`` is False for code alone, such as an ensemble's first and last step. ``members`` are
    the recipes of an ensemble's steps: they are built first, into the same repository. ``in_all`` is
    False where serving needs packages or downloads that Bident does not bring: such a recipe is built
    only when it is named. ``needs`` names those packages, of the Python that runs the model. With
    ``fetches_weights`` the folder holds no weights: the model gets them when it is first loaded.
    """

    name: str
    summary: str
    backend: str
    version: int
    write: Callable[[Path, Report], Facts]
    questions: Callable[[Facts], list[Question]]
    may_be_synthetic: bool = False
    has_weights: bool = True
    members: tuple[Recipe, ...] = ()
    in_all: bool = True
    needs: tuple[str, ...] = ()
    fetches_weights: bool = False

    def build(self, target: Path, report: Report | None = None, *, force: bool = False) -> BuildResult:
        """Make ``<target>/<name>`` unless this version of it is there; ``force`` makes it (not its members) anew.

        The folder appears whole or not at all. Raises ServeError with the cause and the cure; one
        that this zoo did not make is never touched (ALREADY_EXISTS).
        """
        started = time.monotonic()
        folder = target / self.name
        facts = None if force else self.built(target)
        if facts is not None:
            return BuildResult(folder, facts, fresh=False, seconds=time.monotonic() - started)
        if folder.exists() and not model_folder.has_stamp(folder):
            raise ServeError(
                Code.ALREADY_EXISTS,
                f"{folder} exists and was not made by the zoo; move it away or build into another folder",
            )
        for member in self.members:
            member.build(target, report)
        with model_folder.staged(folder) as staging:
            facts = self.write(staging, report or _silent)
            model_folder.write_stamp(staging, self.name, self.version, vars(facts))
        return BuildResult(folder, facts, fresh=True, seconds=time.monotonic() - started)

    def built(self, target: Path) -> Facts | None:
        """The facts of the folder below ``target``, or None where this version of it is not whole.

        An ensemble is whole with all its members, as long as their weights are what it says they are.
        """
        kept = model_folder.read_stamp(target / self.name, self.name, self.version)
        if kept is None:
            return None
        facts = Facts(**kept)
        members = [member.built(target) for member in self.members]
        if not all(members) or (members and facts.synthetic != any(member.synthetic for member in members if member)):
            return None
        return facts


def wrong_answer(expected: str, got: str) -> ServeError:
    """The error a question's ``check`` raises."""
    return ServeError(Code.INTERNAL, f"wrong answer: expected {expected}, got {got}")


def output(answer: Tensors, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """The output ``name`` of an answer. Raises the wrong-answer error if it is missing or not of ``shape``."""
    if name not in answer:
        raise wrong_answer(f"an output '{name}'", f"outputs {sorted(answer)}")
    if answer[name].shape != shape:
        raise wrong_answer(f"'{name}' of shape {list(shape)}", f"shape {list(answer[name].shape)}")
    return answer[name]


def _silent(step: str, fraction: float | None) -> None:
    """Report to nobody."""
