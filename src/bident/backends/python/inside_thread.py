"""A model's own thread inside the server."""

from __future__ import annotations

import contextvars
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

from bident.backends.python.inside_intake import Job, requests_of
from bident.backends.python.inside_link import InsideLink
from bident.backends.python.inside_loading import Imports
from bident.backends.python.spec import WorkerSpec
from bident.backends.python.worker.bident_worker.model import Model
from bident.backends.python.worker.bident_worker.runtime import Runtime

logger = logging.getLogger("bident.python")

SWITCH_SECONDS = 0.0005
"""How long Python code may keep the event loop waiting for its turn.

With the interpreter's own 5 ms, any answer takes 10 ms while a model computes in Python; with this, 0.2 ms.
"""

Told = Callable[[dict[str, Any]], None]
"""Is called on the model's thread with what the model says."""


class ModelThread:
    """Runs everything that a model does. A daemon: a model that never returns does not keep the server."""

    def __init__(self, spec: WorkerSpec, link: InsideLink) -> None:
        self._spec = spec
        self._link = link
        arguments = spec.arguments()
        directory, version = arguments["model_repository"], arguments["model_version"]
        runtime = Runtime(cast("Any", link), spec.instance_name, str(Path(directory, version)))
        runtime.decoupled = spec.decoupled
        self._imports = Imports(runtime, directory, version, spec.file_name)
        link.before_answering = self._imports.withdraw
        self._model = Model(runtime, self._imports.load, requests_of)
        self._context = contextvars.Context()
        self._jobs: SimpleQueue[Job | Callable[[], None] | None] = SimpleQueue()
        self._unwanted = False

    def start(self, do: str, started: Told, ended: Callable[[], None]) -> None:
        """Import the model and ``do`` what ``Model.start`` can; ``started`` and ``ended`` are told of it on the thread.

        Raises RuntimeError when no thread can be had.
        """
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        name = f"bident {self._spec.instance_name}"
        threading.Thread(target=self._live, args=(do, started, ended), name=name, daemon=True).start()

    def run(self, job: Job) -> None:
        """Have a batch executed."""
        self._jobs.put(job)

    def run_here(self, job: Job) -> None:
        """Execute a batch in the calling thread, as if it were the model's. The model must have been initialised."""
        run = self._model.run
        assert run is not None
        self._context.run(self._run, run, job)
        self._imports.withdraw()

    @property
    def is_async(self) -> bool:
        """Whether the model's ``execute`` is a coroutine."""
        return self._model.is_async

    def ask_ready(self, told: Told) -> None:
        """Ask the model's ``is_ready``, once it is at nothing else."""
        self._jobs.put(lambda: told(self._model.readiness()))

    def end(self) -> None:
        """Have the model finalised once it returns from what it does now, and the thread ended."""
        self._unwanted = True
        self._jobs.put(None)

    def _live(self, do: str, started: Told, ended: Callable[[], None]) -> None:
        try:
            said = self._model.start(do, self._spec.arguments())
            self._imports.withdraw()
            self._context = contextvars.copy_context()
            started(said)
            if self._model.run is not None:
                self._serve(self._model.run)
            error = self._model.finalize().get("error")
            if error is not None:
                logger.error("%s: finalize failed: %s", self._spec.instance_name, error)
        finally:
            self._imports.close()
            ended()

    def _serve(self, run: Callable[[Job], None]) -> None:
        while True:
            job = self._jobs.get()
            if job is None or self._unwanted:
                return
            if type(job) is Job:
                self._run(run, job)
            else:
                job()  # type: ignore[operator]
            del job  # or the last batch's tensors would stay until the next one comes
            self._imports.withdraw()

    def _run(self, run: Callable[[Job], None], job: Job) -> None:
        try:
            run(job)
        except BaseException as error:
            # Only what is wrong here gets so far: what the model raises has been answered.
            logger.exception("%s: a batch could not be executed", self._spec.instance_name)
            self._link.fail(job.number, len(job.requests), error)
