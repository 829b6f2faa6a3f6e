"""The text server: settings in, running server out. Start, drain, stop.

Where a real Ollama has the port already it is used as it is, and this server stands by: it opens its
own doors when that one has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from bident.errors import ServeError, SettingsError
from bident.observe import log
from bident.settings import TextSettings
from bident.settings.addresses import Upstream
from bident.settings.security import is_loopback
from bident.settings.text import DEFAULT_PORT
from bident.sockets import Listening, bind_all
from bident.text.doors.bodies import Bodies
from bident.text.doors.guard import Guard, Keys
from bident.text.doors.listening import TextListener
from bident.text.doors.metrics import Metrics
from bident.text.doors.passing import Passing, Sorting, ollama_version
from bident.text.doors.routes import application
from bident.text.doors.together import Together
from bident.text.durations import parse_keep_alive_setting
from bident.text.engine import TextEngine
from bident.text.runner.limits import Limits
from bident.text.runner.residency import Residency
from bident.text.store.library import DEFAULT_ROOT, Library, ollama_libraries
from bident.text.tracing.clients import Clients
from bident.text.tracing.engine import TracedEngine
from bident.text.tracing.spans import TextSpans
from bident.text.upstream import UpstreamModels, model_key
from bident.tls.certificate import Certificate

logger = logging.getLogger("bident.text")

_OLLAMA = f"http://127.0.0.1:{DEFAULT_PORT}"
_STANDBY_SECONDS = 2.0
"""Between two looks at whether the Ollama that is used is still there."""
_CLOSE_SECONDS = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_KEY_HEADERS = frozenset((b"authorization", b"x-api-key"))


def run_text(settings: TextSettings, keys: Keys | None = None) -> int:
    """Serve text until a signal comes; the process's exit code. Requests must carry one of ``keys``, if there are any.

    0 after a graceful stop; 1 when the port cannot be had, a setting is wrong, or answers take longer
    than ``exit_timeout_secs`` to finish.
    """
    try:
        _configure_log(settings)
        server = TextServer(settings, keys)
    except (OSError, ServeError) as error:
        logger.error("%s", error)
        return 1
    return _run(server.run())


def _configure_log(settings: TextSettings) -> None:
    """Log as ``settings`` say; uvicorn's own errors go the same way. Raises OSError."""
    log.configure(
        verbose=settings.log_verbose,
        info=settings.log_info,
        warning=settings.log_warning,
        error=settings.log_error,
        style=settings.log_format,
        path=settings.log_file,
    )
    theirs = logging.getLogger("uvicorn")
    theirs.handlers[:] = logging.getLogger("bident").handlers
    theirs.setLevel(logging.ERROR)
    theirs.propagate = False


def _run(main: Coroutine[Any, Any, int]) -> int:
    """Run a coroutine on the fastest loop this platform has."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.run(main)
    return uvloop.run(main)


class TextServer:
    """One text engine, its doors, and the other servers that answer beside it or in its place."""

    def __init__(self, settings: TextSettings, keys: Keys | None) -> None:
        """Raises SettingsError where a setting makes no sense, UNAVAILABLE where it needs what is not installed."""
        self._settings = settings
        self._keys = keys
        self._limits = _limits(settings)
        self._certificate = _certificate(settings)
        self._spans = TextSpans.start(settings)
        self._signalled = asyncio.Event()
        self._server: TextListener | None = None
        self._passing: dict[str, Passing] = {}

    async def run(self) -> int:
        """Start, serve, stop."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            with contextlib.suppress(NotImplementedError):  # Windows: the default, KeyboardInterrupt, remains
                loop.add_signal_handler(number, self._signal, number)
        default = await self._default_upstream()
        if self._signalled.is_set():
            return 0
        try:
            bound = bind_all([Listening("text", self._settings.host.host, self._settings.port)], "--port")["text"]
        except ServeError as error:
            logger.error("%s", error)
            return 1
        library = Library(*_libraries(self._settings))
        residency = Residency(self._limits)
        upstreams = UpstreamModels((*self._settings.upstream[:-1], default), self._settings.upstream_api_key)
        try:
            await library.open(prune=not self._settings.noprune)
            app = self._application(self._engine(library, residency, upstreams), default)
            await self._say_started(bound.getsockname(), library, default)
            gc.collect()
            gc.freeze()  # what is there now stays; the collector need not look at it again
            return await self._serve(app, bound)
        finally:
            await _close(residency, library, upstreams, *self._passing.values())
            if self._spans is not None:
                await loop.run_in_executor(None, self._spans.close, _CLOSE_SECONDS)

    async def _default_upstream(self) -> Upstream:
        """Who answers for models that no setting names. Where a real Ollama has the port, this waits for it to go."""
        default = self._settings.upstream[-1]
        if default.kind != "auto":
            return default
        version = await ollama_version(_OLLAMA)
        if version is None:
            return Upstream("none")
        if self._settings.port != DEFAULT_PORT:
            logger.info("Ollama %s answers at %s and is used: --upstream=none is the engine inside", version, _OLLAMA)
            return Upstream("ollama", _OLLAMA)
        logger.info(
            "Ollama %s answers at %s and is used as it is; this server stands by until it stops. With another --port "
            "and --upstream=none both run",
            version,
            _OLLAMA,
        )
        while version is not None and not self._signalled.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._signalled.wait(), _STANDBY_SECONDS)
            version = await ollama_version(_OLLAMA)
        return Upstream("none")

    def _engine(self, library: Library, residency: Residency, upstreams: UpstreamModels) -> TextEngine:
        if self._spans is None:
            return TextEngine(library, residency, upstreams)
        return TracedEngine(library, residency, upstreams, self._spans)

    def _application(self, engine: TextEngine, default: Upstream) -> ASGIApp:
        """The engine's doors, or those of the servers in its place, behind the guard."""
        settings = self._settings
        bodies = Bodies(settings.max_body_bytes)
        own = application(engine, bodies)
        app = self._ollama(default.url) if default.kind == "ollama" else own
        by_model: dict[str, ASGIApp] = {
            model_key(each.model): self._ollama(each.url) if each.kind == "ollama" else own
            for each in settings.upstream[:-1]
        }
        if by_model:
            listed = Together(app, own, by_model) if app is not own else app
            app = Sorting(listed, by_model, bodies)
        app = Metrics(app, engine)
        if self._spans is not None:
            app = Clients(app)
        return Guard(app, origins=settings.origins, loopback=is_loopback(settings.host.host), keys=self._keys)

    def _ollama(self, url: str) -> Passing:
        if url not in self._passing:
            self._passing[url] = Passing(url, private=_KEY_HEADERS if self._keys else frozenset())
        return self._passing[url]

    async def _say_started(self, address: Any, library: Library, default: Upstream) -> None:
        host, port = address[:2]
        logger.info("Started text at %s:%d", host, port)
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        url = f"{'https' if self._certificate else 'http'}://{shown}:{port}"
        if default.kind in ("ollama", "openai"):
            logger.info("Ollama's API and OpenAI's (/v1) at %s, answered by %s", url, default)
        else:
            logger.info("Ollama's API and OpenAI's (/v1) at %s; models: %d", url, len(await library.models()))
        if is_loopback(self._settings.host.host):
            logger.info("Only this machine reaches it; for containers and others give --host and --api-key-file")

    async def _serve(self, app: ASGIApp, bound: Any) -> int:
        self._server = server = TextListener(app, self._certificate, self._settings.exit_timeout_secs)
        server.should_exit = self._signalled.is_set()
        await server.serve([bound])
        late = [task for task in server.server_state.tasks if not task.done()]
        await asyncio.gather(*late, return_exceptions=True)  # they have been cancelled, and give back what they hold
        return 1 if late or server.force_exit else 0

    def _signal(self, number: int) -> None:
        if self._signalled.is_set():
            logger.warning("Signal (%d) received again: exiting at once", number)
            if self._server is not None:
                self._server.force_exit = True
                for task in self._server.server_state.tasks:
                    task.cancel()
            return
        logger.info("Signal (%d) received.", number)
        self._signalled.set()
        if self._server is not None:
            self._server.should_exit = True


async def _close(*closing: Residency | Library | UpstreamModels | Passing) -> None:
    ends = [asyncio.ensure_future(each.close()) for each in closing]
    done, late = await asyncio.wait(ends, timeout=_CLOSE_SECONDS)
    for failure in filter(None, (end.exception() for end in done)):
        logger.error("closing failed", exc_info=failure)
    if late:
        logger.error("not closed in time: %d of %d", len(late), len(ends))


def _limits(settings: TextSettings) -> Limits:
    defaults = Limits()
    return Limits(
        context_length=settings.context_length or defaults.context_length,
        keep_alive=_seconds("--keep-alive", settings.keep_alive),
        slots=settings.num_parallel or defaults.slots,
        max_loaded=settings.max_loaded_models,
        max_queue=settings.max_queue,
        load_seconds=_seconds("--load-timeout", settings.load_timeout),
        threads=settings.threads,
        kv_cache_type=settings.kv_cache_type,
        flash_attention=settings.flash_attention,
    )


def _certificate(settings: TextSettings) -> Certificate | None:
    if not settings.is_encrypted:
        return None
    files = settings.server_cert, settings.server_key, settings.root_cert
    return Certificate("--", *files, mutual=settings.use_ssl_mutual, protocols=("http/1.1",))


def _seconds(flag: str, text: str) -> float:
    try:
        return parse_keep_alive_setting(text)
    except ServeError as error:
        raise SettingsError(f"{flag}={text}: {error.message}") from None


def _libraries(settings: TextSettings) -> tuple[Path, list[Path], list[Path]]:
    """Where models are: our own store, libraries in Ollama's layout, and files or folders of files."""
    for path in settings.library:
        if not path.exists():
            logger.warning("--library=%s: there is no such file or folder", path)
    others = [path.expanduser() for path in settings.library]
    foreign = [path for path in others if (path / "manifests").is_dir()]
    files = [path for path in others if path not in foreign]
    return settings.models or DEFAULT_ROOT, [*foreign, *ollama_libraries(os.environ)], files
