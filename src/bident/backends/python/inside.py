"""``LANE`` ``thread`` or ``inline``: a trusted Python model inside the server.

The same ``model.py`` as in a worker process, on a thread of its own in the server's. What that costs,
and why a model has to ask for it:

- What cannot be caught ends the server, with every other model: a crash of native code, ``os._exit``, memory
  running out. There is nothing to restart. (Exceptions, ``SystemExit`` and ``KeyboardInterrupt`` cost
  their batch the answer, as in a worker.)
- A model that never returns keeps its thread, and its requests unanswered, until the server ends.
- Python code of the model and the server's event loop take turns (the GIL): while such a model computes
  in Python, the server has half of a core. It is for models that are quick, or compute in native code.
- The server's own interpreter and packages run it (no ``EXECUTION_ENV_PATH``). Models share what a
  process has once: ``os.environ``, the working directory, ``sys.path`` and the state of packages (see
  ``inside_loading`` for how their own modules are kept apart). Only the main thread may set signal handlers.
- What a model prints goes where the server's output goes, not to its log.

``LANE`` ``inline`` spares a model the thread, too: the event loop itself calls ``execute``, which is the
fastest way for a model of some microseconds, and a promise of its author: while it executes, nothing
else in the server does. So it cannot ask the server for anything (other models, loads, readiness), nor
be asynchronous or decoupled, and must not wait for anything that the server has to do, such as an HTTP
request to it. It is initialised and finalised on a thread of its own all the same.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

from bident.backends.base import Arrays
from bident.backends.python.inside_host import InsideHost
from bident.backends.python.inside_intake import Job
from bident.backends.python.inside_link import InsideLink
from bident.backends.python.inside_thread import ModelThread
from bident.backends.python.instance import HostedInstance
from bident.backends.python.messages import Event
from bident.backends.python.metrics import CustomMetrics
from bident.backends.python.spec import WorkerSpec
from bident.backends.python.supervisor import Patience
from bident.errors import Code, ServeError
from bident.wire.infer import InferRequest


class InsideInstance(HostedInstance):
    """One model inside the server."""

    _host: InsideHost

    def __init__(self, spec: WorkerSpec, metrics: CustomMetrics, patience: Patience, *, inline: bool = False) -> None:
        super().__init__()
        self._host = InsideHost(spec, self._take, self._enter, metrics, patience, inline=inline)

    def _send(self, number: int, requests: Sequence[InferRequest], inputs: Arrays | list[Arrays]) -> None:
        for request in requests:
            if request.trace is not None:
                self._calls.traces[request.trace.id] = request.trace
        self._host.run(Job(number, requests, inputs))


def complete(spec: WorkerSpec, metrics: CustomMetrics, patience: Patience) -> dict[str, Any] | None:
    """The configuration as the model's ``auto_complete_config`` has it, None if it has none.

    Runs on a thread of its own; blocks until it has returned. Raises ServeError.
    """
    held = metrics.worker()
    said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    link = InsideLink(spec.instance_name, _ignore, held, _no_wait)
    seconds = patience.start_seconds
    try:
        ModelThread(spec, link).start("complete", said.put, lambda: None)
        answer = said.get(timeout=seconds)
    except RuntimeError as error:
        raise ServeError(Code.UNAVAILABLE, f"no thread for '{spec.instance_name}': {error}") from error
    except queue.Empty:
        what = f"'auto_complete_config' did not return within {seconds:g} seconds; its thread stays until it does"
        raise ServeError(Code.INTERNAL, f"'{spec.instance_name}': {what}") from None
    finally:
        link.is_abandoned = True
        held.close()
    if "error" in answer:
        raise ServeError(Code.INTERNAL, answer["error"])
    config: dict[str, Any] | None = answer["config"]
    return config


def _ignore(events: Sequence[Event]) -> None:
    """What a model says that is not running is for nobody."""


def _no_wait() -> None:
    """What is ignored needs no room."""
