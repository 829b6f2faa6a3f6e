"""The life of a worker: start, complete, initialise, execute, finalise."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from .frames import Frame, Kind
from .intake import requests_of
from .link import Link
from .loading import import_model
from .model import Model
from .runtime import Runtime, install


class Worker:
    """Does what the server says, until it says no more."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._model: Model | None = None

    def serve(self) -> None:
        """Take jobs off the channel for ever."""
        link = self._link
        jobs = link.jobs
        run: Any = None
        while True:
            link.wait(lambda: jobs)
            frame = jobs.popleft()
            kind = frame.kind
            if kind in (Kind.BATCH, Kind.PLAIN) and run is not None:
                run(frame)
                del frame
                link.tell_freed()
            elif kind == Kind.START:
                run = self._start(frame.header)
            else:
                self._answer(frame)

    def _answer(self, frame: Frame) -> None:
        if frame.kind == Kind.FINALIZE:
            self._finalize()
        elif frame.kind == Kind.ASK_READY and self._model is not None:
            self._link.send(Kind.READY, {"token": frame.header["token"], **self._model.readiness()})

    def _start(self, header: dict[str, Any]) -> Any:
        args = header["args"]
        model = self._model
        if model is None:
            directory = str(Path(args["model_repository"], args["model_version"]))
            runtime = Runtime(self._link, args["model_instance_name"], directory)
            runtime.decoupled = header["decoupled"]
            install(runtime)
            load = partial(import_model, args["model_repository"], args["model_version"], header["file"])
            model = self._model = Model(runtime, load, requests_of)
        said = model.start(header["do"], args)
        if model.run is not None:
            # What has been loaded so far stays: the collector need not look at it again.
            gc.collect()
            gc.freeze()
        self._link.send(Kind.STARTED, said)
        return model.run

    def _finalize(self) -> None:
        said = {} if self._model is None else self._model.finalize()
        self._link.closing = True
        self._link.send(Kind.FINALIZED, said)
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
