"""The settings of the server as a whole: its identity, its log, and the models it holds."""

# ruff: noqa: RUF009 - setting() returns a dataclass field, not a default value

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bident.settings.setting import setting
from bident.settings.values import BOOLEAN, COUNT, FILE, FOLDERS, NAMES, TEXT, VERBOSITY, choice, whole


@dataclass(frozen=True)
class Server:
    """Who the server is and how it ends."""

    title: ClassVar[str] = "Server"

    engine: str = setting(
        choice("bident", "triton"),
        "bident",
        "bident, or triton: NVIDIA's tritonserver on the same repository, from TRITON_HOME, the PATH or the package "
        "nvidia-pytriton.",
    )
    server_id: str = setting(TEXT, "triton", "The name that server metadata answers.", flag="--id")
    exit_timeout_secs: int = setting(
        COUNT, 30, "Seconds that requests in flight may take to finish once the server has been told to stop."
    )
    workers: int = setting(
        whole(1),
        1,
        "Server processes that share the ports, each with every model and a loop of its own: for more than one core.",
    )
    triton_compat: bool = setting(
        BOOLEAN,
        False,
        "Keep Triton's behaviour where Bident mends a fault of it (docs/differences.md says which).",
        takes_value=False,
    )
    config_file: Path | None = setting(
        FILE, None, "TOML file whose [tensor] table sets any of these; ./bident.toml is read without being named."
    )


@dataclass(frozen=True)
class Logging:
    """What the log says and where it goes."""

    title: ClassVar[str] = "Logging"

    log_verbose: int = setting(VERBOSITY, 0, "Level of verbose logging; 0 is none.")
    log_info: bool = setting(BOOLEAN, True, "Log what happens in the ordinary course.")
    log_warning: bool = setting(BOOLEAN, True, "Log what is suspicious.")
    log_error: bool = setting(BOOLEAN, True, "Log what fails.")
    log_format: str = setting(
        choice("default", "ISO8601"), "default", "How a line starts: LMMDD hh:mm:ss.ssssss, or YYYY-MM-DDThh:mm:ssZ L."
    )
    log_file: str = setting(TEXT, "", "File that the log is written to; without it, standard error.")


@dataclass(frozen=True)
class Repository:
    """Which models are served and who decides."""

    title: ClassVar[str] = "Model repository"

    model_repository: tuple[Path, ...] = setting(
        FOLDERS,
        (),
        "Folder of model folders; repeat it for several. A model name must be in one of them only.",
        aliases=("--model-store",),
    )
    model_control_mode: str = setting(
        choice("none", "poll", "explicit"),
        "none",
        "none: load everything at start and leave it. poll: follow what changes on disk. explicit: load what "
        "--load-model names, then what the load and unload API says.",
    )
    repository_poll_secs: int = setting(whole(1), 15, "Seconds between two looks at the repository in poll mode.")
    load_model: tuple[str, ...] = setting(
        NAMES, (), "Model to load at start in explicit mode; repeat it for several, or give '*' alone for all."
    )
    exit_on_error: bool = setting(BOOLEAN, True, "Exit when a model fails to load at start.")
    strict_readiness: bool = setting(
        BOOLEAN, True, "Report ready only when every model is; otherwise as soon as the server answers."
    )
    disable_auto_complete_config: bool = setting(
        BOOLEAN, False, "Demand complete config.pbtxt files; derive nothing from model files.", takes_value=False
    )
    model_config_name: str = setting(
        TEXT, "", "Use configs/<name>.pbtxt of a model folder, where there is one, instead of config.pbtxt."
    )
    model_load_thread_count: int = setting(whole(1), 4, "How many models load at the same time.")
    model_load_retry_count: int = setting(COUNT, 0, "How often a failed load is tried again.")
    model_cache_directory: Path | None = setting(
        FILE,
        None,
        "Folder that keeps what models fetch and what is unpacked for them over restarts; without it, bident in the "
        "user's cache folder (~/.cache, ~/Library/Caches or %LOCALAPPDATA%).",
    )
    model_namespacing: bool = setting(
        BOOLEAN,
        False,
        "Let repositories hold models of the same name; those are asked for as <repository>::<model>.",
    )
    strict_model_config: bool = setting(
        BOOLEAN, False, "True is --disable-auto-complete-config.", replacement="--disable-auto-complete-config"
    )
