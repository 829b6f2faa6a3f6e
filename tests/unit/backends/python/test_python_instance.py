"""What a model's worker says reaches every request, also when some of it cannot be taken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bident.backends.python.instance import HostedInstance
from bident.backends.python.messages import Answers, BatchDone, Event, Reply
from bident.wire.infer import InferRequest


class Told:
    """Notes what becomes of a batch, and fails on the first answer that brings outputs."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def answered(self, outputs: Any, rows: Any) -> None:
        raise TypeError("senseless")

    def replied(self, index: int, outputs: Any, *, error: Any = None, final: bool = True, **_: Any) -> None:
        if error is None:
            raise TypeError("senseless")
        self.said.append((index, final, error.message))

    def executed(self, start_ns: int, end_ns: int) -> None:
        self.said.append("executed")


class Instance(HostedInstance):
    """An instance whose host is told nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._host = SimpleNamespace(spec=SimpleNamespace(instance_name="m_0", model_name="m"))  # type: ignore[assignment]
        self._calls = SimpleNamespace(take=lambda event: None)  # type: ignore[assignment]

    def _send(self, number: int, requests: Any, inputs: Any) -> None: ...


@pytest.mark.parametrize("event", [Answers(1, {}, [1, 1]), Reply(1, 0, {})], ids=["as a whole", "one"])
def test_an_answer_that_cannot_be_taken_is_an_error_and_the_rest_counts(event: Event) -> None:
    instance, first, second = Instance(), Told(), Told()
    count = 2 if isinstance(event, Answers) else 1
    for told, requests in ((first, count), (second, 1)):
        instance.execute_requests([InferRequest("m", "", "", {}, 0)] * requests, {}, told)
    with pytest.raises(TypeError, match="senseless"):
        instance._take([event, BatchDone(1, 0, 0), BatchDone(2, 0, 0)])
    error = "the answer of 'm_0' makes no sense (TypeError: senseless)"
    assert first.said == ["executed", *[(index, True, error) for index in range(count)]]
    assert second.said == ["executed"]
