"""The composition root: settings in, running server out. Start, drain, stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, NoReturn

from bident.backends.discovery import Backends
from bident.doors.metrics import MetricsPage
from bident.doors.opening import Opening, Server, at_ports, wanted
from bident.doors.safeguards import Safeguards
from bident.engine.cache import ResponseCache
from bident.engine.clients import Clients
from bident.engine.control_mode import ControlMode
from bident.engine.engine import Engine
from bident.engine.lifecycle import Lifecycle
from bident.engine.loader import Loader
from bident.engine.measures import Measures
from bident.engine.rate import RateLimiter
from bident.engine.shared_memory import SharedMemory
from bident.errors import ServeError
from bident.model.repository import Repository, check_folders
from bident.model.scratch import ScratchRoot
from bident.observe import log
from bident.observe.log_settings import LogSettings
from bident.observe.trace_settings import TraceStart
from bident.observe.tracing import Tracing
from bident.settings import TensorSettings
from bident.settings.cache import cache_bytes
from bident.sockets import bind_all, reserve_all
from bident.tls.certificate import RENEWAL_SECONDS

logger = logging.getLogger("bident.server")

_GC_THRESHOLD = 10_000
"""Requests leave no reference cycles, so the collector finds next to nothing and may come rarely."""

_CLOSE_SECONDS = 1.0
"""Closing the models may take this long even where ``exit_timeout_secs`` is shorter."""

_WORKER_COMMAND = (sys.executable, "-m", "bident.worker")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_tensor(settings: TensorSettings) -> int:
    """Serve tensors until a signal comes; the process's exit code.

    0 after a graceful stop; 1 when a port or a model cannot be had, or the stop takes longer than
    ``exit_timeout_secs``.
    """
    try:
        configure_log(settings)
        for notice in settings.notices:
            logger.warning(notice)
        check_folders(settings.model_repository)
        TraceStart.parse(settings.trace_config).check_installed()
        Measures.parse(settings.metrics_config)
        safeguards = Safeguards(settings)
        if settings.insecure and safeguards.keys is None:
            logger.warning(
                "--insecure: whoever reaches the ports may use the models, and load others where clients may"
            )
        if settings.workers > 1:
            return _run_workers(settings)
        sockets = bind_all(wanted(settings))
        overlays = ScratchRoot.make()
    except (OSError, ServeError) as error:
        logger.error("%s", error)
        return 1
    server = TensorServer(settings, sockets, overlays.path, safeguards)
    try:
        code = run(server.run())
    except SystemExit:  # a second signal
        code = 1
    finally:
        overlays.remove()
    if server.has_abandoned_work:
        leave(code)
    return code


def _run_workers(settings: TensorSettings) -> int:
    """Serve with several processes. Raises UNAVAILABLE where a port cannot be had."""
    from bident.workers.supervisor import run_workers

    reserved = reserve_all(wanted(settings))
    try:
        ports = {service: sock.getsockname()[1] for service, sock in reserved.items()}
        return run_workers(at_ports(settings, ports), reserved, _WORKER_COMMAND)
    finally:
        for sock in reserved.values():
            sock.close()


def configure_log(settings: TensorSettings, process: str = "") -> None:
    """Log as ``settings`` say; ``process`` stands where the process id would. Raises OSError."""
    log.configure(
        verbose=settings.log_verbose,
        info=settings.log_info,
        warning=settings.log_warning,
        error=settings.log_error,
        style=settings.log_format,
        path=settings.log_file,
        process=process,
    )


def _log_settings(settings: TensorSettings) -> LogSettings:
    """What clients see of the log that :func:`configure_log` has opened."""
    return LogSettings(
        file=settings.log_file,
        info=settings.log_info,
        warning=settings.log_warning,
        error=settings.log_error,
        verbose=settings.log_verbose,
        style=settings.log_format,
    )


def leave(code: int) -> NoReturn:
    """End the process although threads are still inside a model's native code.

    The interpreter would wait for them, and its exit handlers would tear down the libraries they are in.
    """
    logging.shutdown()
    os._exit(code)


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run a coroutine on the fastest loop this platform has."""
    try:
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    except ImportError:  # Windows
        loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


class TensorServer:
    """One engine and its doors."""

    engine_class: type[Engine] = Engine

    def __init__(
        self, settings: TensorSettings, sockets: dict[str, socket.socket], overlays: Path, safeguards: Safeguards
    ) -> None:
        """``sockets``: bound sockets by service name; ``overlays``: a folder for models that clients send."""
        self._settings = settings
        self._safeguards = safeguards
        self._sockets = sockets
        self._overlays = overlays
        self._signalled = asyncio.Event()
        self._servers: list[Server] = []
        self._clients = Clients()
        self._backends = Backends(settings.backend_config, settings.model_cache_directory)
        self.has_abandoned_work = False
        """Whether threads were left inside a model: the process must not wait for them."""

    async def run(self) -> int:
        """Start, serve, stop."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            with contextlib.suppress(NotImplementedError):  # Windows: the default, KeyboardInterrupt, remains
                loop.add_signal_handler(number, self._signal, number)
        engine = self._build(loop)
        if self._sockets:
            await self._open_doors(engine)
        chores = [asyncio.ensure_future(chore) for chore in self._chores(engine)]
        try:
            served = await self._serve(engine)
        finally:
            for chore in chores:
                chore.cancel()
        code = await self._stop(engine)
        return code if served else 1

    def _chores(self, engine: Engine) -> Iterator[Coroutine[Any, Any, None]]:
        """What is done again and again beside serving."""
        if self._settings.model_control_mode == "poll":
            yield self._poll(engine)
        if self._safeguards.has_certificates:
            yield self._renew_certificates()

    async def _renew_certificates(self) -> None:
        while True:
            await asyncio.sleep(RENEWAL_SECONDS)
            self._safeguards.renew()

    async def _serve(self, engine: Engine) -> bool:
        """Load, and wait to be told to stop. Returns whether it came to that: not where a model is broken."""
        failures = await self._load(engine)
        if self._signalled.is_set():
            return True
        if failures and self._settings.exit_on_error:
            logger.error(
                "failed to load all models: %s did not load, for the reasons above; --exit-on-error=false serves the "
                "others",
                ", ".join(sorted(failures)),
            )
            return False
        gc.collect()
        gc.freeze()  # what is loaded now stays; the collector need not look at it again
        gc.set_threshold(_GC_THRESHOLD, 20, 50)
        await self._signalled.wait()
        return True

    def _build(self, loop: asyncio.AbstractEventLoop) -> Engine:
        settings = self._settings
        repository = Repository(
            list(settings.model_repository),
            config_name=settings.model_config_name,
            auto_complete=not settings.disable_auto_complete_config,
            namespacing=settings.model_namespacing,
        )
        loader = Loader(
            self._backends,
            auto_complete=not settings.disable_auto_complete_config,
            retries=settings.model_load_retry_count,
            at_once=settings.model_load_thread_count,
            servers=settings.workers,
        )
        size = cache_bytes(settings.cache_config)
        lifecycle = Lifecycle(
            loader,
            loop,
            self._clients,
            cache=ResponseCache(size) if size else None,
            limiter=RateLimiter(settings.rate_limit_resource) if settings.rate_limit != "off" else None,
            measures=Measures.parse(settings.metrics_config),
        )
        control = ControlMode(settings.model_control_mode)
        return self.engine_class(
            repository,
            lifecycle,
            control,
            self._overlays,
            strict=settings.strict_readiness,
            shared_memory=SharedMemory(settings.allow_client_shm),
            tracing=Tracing(TraceStart.parse(settings.trace_config)),
            log_settings=_log_settings(settings),
        )

    def _metrics_page(self, engine: Engine) -> MetricsPage:
        return self._make_page(engine)

    def _make_page(self, engine: Engine, summed: Callable[[str], Awaitable[str]] | None = None) -> MetricsPage:
        settings = self._settings
        return MetricsPage(
            engine,
            self._backends.metrics,
            host=settings.allow_cpu_metrics,
            interval_seconds=settings.metrics_interval_ms / 1000,
            summed=summed,
        )

    async def _open_doors(self, engine: Engine) -> None:
        opening = Opening(self._settings, engine, self._metrics_page(engine), self._safeguards, self._clients)
        for service, bound in self._sockets.items():
            server, context = opening.door(service)
            await server.start(bound, context)
            self._servers.append(server)
            address, port = bound.getsockname()[:2]
            logger.info("Started %s at %s:%d", service, address, port)

    async def _load(self, engine: Engine) -> dict[str, ServeError]:
        started = time.monotonic()
        loading = asyncio.ensure_future(engine.start(self._startup_names()))
        signalled = asyncio.ensure_future(self._signalled.wait())
        await asyncio.wait({loading, signalled}, return_when=asyncio.FIRST_COMPLETED)
        if not loading.done():
            loading.cancel()
            return {}
        signalled.cancel()
        ready = len(engine.lifecycle.servables())
        logger.info("%d model versions ready after %.2f s", ready, time.monotonic() - started)
        return loading.result()

    def _startup_names(self) -> list[str] | None:
        """The models to load at the start; None for all there are."""
        settings = self._settings
        if settings.model_control_mode == "explicit" and settings.load_model != ("*",):
            return list(settings.load_model)
        return None

    async def _poll(self, engine: Engine) -> None:
        """Look at the repository again and again, also while models found the last time are still loading."""
        looks: set[asyncio.Task[None]] = set()
        try:
            while True:
                await asyncio.sleep(self._settings.repository_poll_secs)
                look = asyncio.ensure_future(self._look(engine))
                looks.add(look)
                look.add_done_callback(looks.discard)
        finally:
            for look in looks:
                look.cancel()

    async def _look(self, engine: Engine) -> None:
        try:
            await engine.poll()
        except Exception:
            logger.exception("polling the model repository failed")

    def _signal(self, number: int) -> None:
        if self._signalled.is_set():
            logger.warning("Signal (%d) received again: exiting at once", number)
            self.has_abandoned_work = True
            raise SystemExit(1)
        logger.info("Signal (%d) received.", number)
        self._signalled.set()

    async def _stop(self, engine: Engine) -> int:
        """Refuse what is new, answer what is accepted, then close; 1 if that takes too long."""
        engine.stop_accepting()
        for server in self._servers:
            server.is_draining = True
        deadline = time.monotonic() + self._settings.exit_timeout_secs
        last_said = 0.0
        late = False
        while (busy := engine.lifecycle.in_flight()) or any(server.owes_answers for server in self._servers):
            now = time.monotonic()
            if now > deadline:
                logger.error("exit timeout: %d model versions still have in-flight inferences", sum(busy.values()))
                late = True
                break
            if now - last_said > 1:
                last_said = now
                logger.info(
                    "Timeout %d: Found %d model versions that have in-flight inferences%s",
                    math.ceil(deadline - now),
                    sum(busy.values()),
                    f": {', '.join(sorted(busy))}" if busy else "",
                )
            await asyncio.sleep(0.02)
        for server in self._servers:
            await server.stop()
        seconds = 0.0 if late else max(_CLOSE_SECONDS, deadline - time.monotonic())
        unclosed = await engine.lifecycle.retire_all(seconds)
        if unclosed and not late:
            logger.error("exit timeout: not closed in time: %s", ", ".join(unclosed))
            late = True
        seconds = max(_CLOSE_SECONDS, deadline - time.monotonic())
        await asyncio.get_running_loop().run_in_executor(None, engine.tracing.close, seconds)
        self.has_abandoned_work = engine.lifecycle.close() or late
        return 1 if late else 0
