"""The model itself, wherever it runs: completed, initialised, executed, asked whether it is ready, finalised."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from typing import Any, Callable

from .errors import told
from .execution import Execution, Intake
from .hints import hint_of, misspelt
from .logger import LogLevel, write
from .model_config import ModelConfig
from .runtime import Runtime

_READY_SECONDS = 5.0


class Model:
    """One ``TritonPythonModel``. Whatever it raises becomes part of what is answered."""

    def __init__(self, runtime: Runtime, load: Callable[[], Any], intake: Intake) -> None:
        """``load`` imports the class, ``intake`` makes requests of what ``run`` is given."""
        self._runtime = runtime
        self._load = load
        self._intake = intake
        self._class: Any = None
        self._model: Any = None
        self._execution: Execution | None = None

    def start(self, do: str, args: dict[str, Any]) -> dict[str, Any]:
        """Import the model and ``do`` what is wanted of it: ``complete`` its configuration or ``initialize`` it."""
        start = time.monotonic_ns()
        try:
            if self._class is None:
                self._class = self._load()
            if do == "complete":
                return self._completed(args)
            declared = json.loads(args["model_config"]).get("output", ())
            self._runtime.outputs = [output["name"] for output in declared]
            self._model = self._class()
            initialize = getattr(self._model, "initialize", None)
            if initialize is not None:
                initialize(args)
            self._check_methods()
        except BaseException as error:  # noqa: BLE001 - sys.exit() in a model is an answer to the server
            hint = hint_of(error, self._runtime, start)
            return {"error": told(error, hint=hint, root=args["model_repository"])}
        self._execution = Execution(self._model, self._runtime, self._intake)
        self._execution.allow_calls(allowed=True)
        return {}

    def _check_methods(self) -> None:
        found = misspelt(self._model)
        if not hasattr(self._model, "execute"):
            what = f"it has '{found['execute']}': did you mean 'execute'?" if "execute" in found else "add it"
            raise AttributeError(f"'{type(self._model).__name__}' has no 'execute'; {what}")
        for meant, name in found.items():
            write(f"nobody calls '{name}' of '{type(self._model).__name__}'; did you mean '{meant}'?", LogLevel.WARNING)

    @property
    def run(self) -> Callable[[Any], None] | None:
        """Executes a batch and answers it; None before the model has been initialised."""
        return None if self._execution is None else self._execution.run

    @property
    def is_async(self) -> bool:
        """Whether ``execute`` is a coroutine."""
        return inspect.iscoroutinefunction(getattr(self._model, "execute", None))

    def readiness(self) -> dict[str, Any]:
        """Whether the model says that it is ready, and if it does not, why."""
        if self._execution is None:
            return {"ready": False, "reason": "the model has not been initialised"}
        is_ready = getattr(self._model, "is_ready", None)
        if is_ready is None:
            return {"ready": True}
        try:
            answer = is_ready()
            if inspect.iscoroutine(answer):
                answer = self._awaited(self._execution, asyncio.wait_for(answer, _READY_SECONDS))
        except BaseException as error:  # noqa: BLE001 - whatever it raises, the model is not ready
            return {"ready": False, "reason": f"is_ready failed: {told(error)}"}
        if not isinstance(answer, bool):
            return {"ready": False, "reason": f"is_ready must return a bool, found type '{type(answer)}'"}
        return {"ready": answer}

    def finalize(self) -> dict[str, Any]:
        """Have the model finalised, if it was initialised; it may ask no other model any more."""
        said: dict[str, Any] = {}
        execution, self._execution = self._execution, None
        if execution is not None:
            execution.allow_calls(allowed=False)
            try:
                finalize = getattr(self._model, "finalize", None)
                if finalize is not None:
                    finalize()
            except BaseException as error:  # noqa: BLE001 - the server is told, and goes on all the same
                said["error"] = told(error)
            execution.close()
        self._model = self._class = None
        return said

    def _completed(self, args: dict[str, Any]) -> dict[str, Any]:
        complete = getattr(self._class, "auto_complete_config", None)
        if complete is None:
            return {"config": None}
        config = complete(ModelConfig(args["model_config"]))
        if not isinstance(config, ModelConfig):
            name = args["model_name"]
            return {
                "error": f"auto_complete_config function in model '{name}' must return a valid pb.ModelConfig object."
            }
        return {"config": config.as_dict()}

    @staticmethod
    def _awaited(execution: Execution, coroutine: Any) -> Any:
        loop = execution.event_loop()
        if loop.is_running():
            return asyncio.run_coroutine_threadsafe(coroutine, loop).result()
        return loop.run_until_complete(coroutine)
