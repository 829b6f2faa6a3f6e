"""What a model asks of other models, as far as the log has to say something of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bident.backends.python.calls import ModelCalls
from bident.backends.python.messages import InferCall, Request
from bident.errors import Code, ServeError
from bident.wire.infer import InferRequest, InferResponse


class Model:
    """A running model that notes the errors it is answered."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.worker = self

    def answered(self) -> None: ...

    def answer_infer(self, call: int, outputs: Any = None, *, error: ServeError | None = None, **rest: Any) -> None:
        self.errors.append("" if error is None else error.message)


class Site:
    """A server whose model ``there`` fails as ``failure`` says; there is no other."""

    def __init__(self, failure: Callable[[], ServeError]) -> None:
        self.failure = failure

    def infer(self, request: InferRequest) -> None:
        request.reply(InferResponse.failure(request, self.failure()))

    def is_model_ready(self, name: str, version: str) -> bool:
        return name == "there"

    def is_decoupled(self, name: str, version: str) -> bool:
        return False


def calls(failure: Callable[[], ServeError]) -> tuple[ModelCalls, Model]:
    model = Model()
    return ModelCalls(Site(failure), model, "asking_0"), model  # type: ignore[arg-type]


def ask(made: ModelCalls, name: str, times: int = 1) -> None:
    for number in range(times):
        made.take(InferCall(number, name, -1, False, Request()))


def test_failed_calls_are_logged_once_for_each_model_and_cause(caplog: pytest.LogCaptureFixture) -> None:
    made, model = calls(lambda: ServeError(Code.INTERNAL, "ValueError: no\n\nAt:\n  somewhere"))
    ask(made, "there", 3)
    ask(made, "their", 3)
    assert len(model.errors) == 6
    first, second = caplog.messages
    assert first == "asking_0: its call of model 'there' failed: ValueError: no"
    assert second.startswith("asking_0: its call of model 'their' failed: Failed for execute the inference request.")


def test_messages_that_are_new_each_time_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    numbers = iter(range(1000))
    made, _ = calls(lambda: ServeError(Code.INVALID_ARG, f"request {next(numbers)} is wrong"))
    ask(made, "there", 1000)
    assert len(caplog.messages) == 100


def test_a_call_whose_answers_cannot_be_handed_over_ends_with_the_reason() -> None:
    class Full(Model):
        def answer_infer(self, call: int, outputs: Any = None, *, error: ServeError | None = None, **rest: Any) -> None:
            if error is None:
                raise ServeError(Code.UNAVAILABLE, "too much waits")
            super().answer_infer(call, outputs, error=error, **rest)

    class Streaming(Site):
        def __init__(self) -> None:
            self.asked: list[InferRequest] = []
            self.cancelled: list[InferRequest] = []

        def infer(self, request: InferRequest) -> None:
            self.asked.append(request)

        def cancel(self, request: InferRequest) -> None:
            self.cancelled.append(request)

        def is_decoupled(self, name: str, version: str) -> bool:
            return True

    site, model = Streaming(), Full()
    made = ModelCalls(site, model, "asking_0")  # type: ignore[arg-type]
    for _ in range(2):  # the number of a call that is over may come again
        made.take(InferCall(1, "there", -1, True, Request()))
        with pytest.raises(ValueError, match="call 1 is under way"):
            made.take(InferCall(1, "there", -1, True, Request()))
        request = site.asked[-1]
        for final in (False, False, True):
            response = InferResponse("there", "1", "", [], 0, 0)
            response.final = final
            request.reply(response)
    assert model.errors == ["too much waits"] * 2
    assert site.cancelled == site.asked
