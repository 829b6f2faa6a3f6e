"""The life of a worker: start, complete, initialise, execute, finalise."""

from __future__ import annotations

import asyncio
import atexit
import gc
import inspect
import os
import sys
from pathlib import Path
from typing import Any

from .errors import told
from .execution import Execution
from .frames import Kind
from .link import Link
from .loading import import_model
from .model_config import ModelConfig
from .runtime import Runtime, install

_READY_SECONDS = 5.0


class Worker:
    """Does what the server says, until it says no more."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._class: Any = None
        self._model: Any = None
        self._execution: Execution | None = None

    def serve(self) -> None:
        """Take jobs off the channel for ever."""
        link = self._link
        jobs = link.jobs
        while True:
            link.wait(lambda: jobs)
            frame = jobs.popleft()
            kind = frame.kind
            if kind in (Kind.BATCH, Kind.PLAIN) and self._execution is not None:
                self._execution.run(frame)
                del frame
                link.tell_freed()
            elif kind == Kind.START:
                link.send(Kind.STARTED, self._start(frame.header))
            elif kind == Kind.ASK_READY:
                link.send(Kind.READY, {"token": frame.header["token"], **self._readiness()})
            elif kind == Kind.FINALIZE:
                self._finalize()

    def _start(self, header: dict[str, Any]) -> dict[str, Any]:
        args = header["args"]
        directory = str(Path(args["model_repository"], args["model_version"]))
        runtime = Runtime(self._link, args["model_instance_name"], directory)
        runtime.decoupled = header["decoupled"]
        install(runtime)
        try:
            if self._class is None:
                self._class = import_model(args["model_repository"], args["model_version"], header["file"])
            if header["do"] == "complete":
                return self._completed(args)
            self._model = self._class()
            initialize = getattr(self._model, "initialize", None)
            if initialize is not None:
                initialize(args)
            if not hasattr(self._model, "execute"):
                raise AttributeError(f"'{type(self._model).__name__}' has no 'execute'")
        except BaseException as error:  # noqa: BLE001 - sys.exit() in a model is an answer to the server
            return {"error": told(error)}
        self._execution = Execution(self._model, runtime)
        self._execution.allow_calls(allowed=True)
        # What has been loaded so far stays: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        return {}

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

    def _readiness(self) -> dict[str, Any]:
        if self._execution is None:
            return {"ready": False, "reason": "the model has not been initialised"}
        is_ready = getattr(self._model, "is_ready", None)
        if is_ready is None:
            return {"ready": True}
        try:
            answer = is_ready()
            if inspect.iscoroutine(answer):
                answer = self._awaited(asyncio.wait_for(answer, _READY_SECONDS))
        except BaseException as error:  # noqa: BLE001 - whatever it raises, the model is not ready
            return {"ready": False, "reason": f"is_ready failed: {told(error)}"}
        if not isinstance(answer, bool):
            return {"ready": False, "reason": f"is_ready must return a bool, found type '{type(answer)}'"}
        return {"ready": answer}

    def _awaited(self, coroutine: Any) -> Any:
        assert self._execution is not None
        loop = self._execution.event_loop()
        if loop.is_running():
            return asyncio.run_coroutine_threadsafe(coroutine, loop).result()
        return loop.run_until_complete(coroutine)

    def _finalize(self) -> None:
        header: dict[str, Any] = {}
        if self._execution is not None:
            self._execution.allow_calls(allowed=False)
            try:
                finalize = getattr(self._model, "finalize", None)
                if finalize is not None:
                    finalize()
            except BaseException as error:  # noqa: BLE001 - the server is told, and the worker ends all the same
                header["error"] = told(error)
            self._execution.close()
        self._link.closing = True
        self._link.send(Kind.FINALIZED, header)
        _flush()
        # Not sys.exit(): threads that the model has left behind must not keep the process.
        atexit._run_exitfuncs()
        _flush()
        os._exit(0)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue
