"""Which Python runs a model: the server's own, a virtual environment, or a conda-pack archive."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from bident.backends.python.archive import unpack
from bident.errors import ConfigError
from bident.model.files import kind_of

PARAMETER = "EXECUTION_ENV_PATH"
MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
PYTHONS = ("bin/python3", "bin/python", "python.exe", "Scripts/python.exe")
_WANTED = "name a virtual environment's folder or a conda-pack archive"
_SHOWN_CHARACTERS = 100


@dataclass(frozen=True)
class Environment:
    """An interpreter, and the variables that a process under it needs."""

    interpreter: Path
    variables: dict[str, str]


def environment_of(parameter: str, model_directory: Path, cache: Path) -> Environment:
    """The environment that ``EXECUTION_ENV_PATH`` names; the server's own if it is empty.

    An archive is unpacked below ``cache``, once as long as it does not change. May block for long.
    Raises ConfigError.
    """
    if not parameter:
        return Environment(Path(sys.executable), {})
    if parameter.startswith(MODEL_DIRECTORY):
        parameter = str(model_directory) + parameter[len(MODEL_DIRECTORY) :]
    path = Path(parameter)
    facts = _facts(path)
    if stat.S_ISDIR(facts.st_mode):
        return _in_folder(path, path)
    _check_archive(path, facts)
    identity = f"{path.resolve()}\0{facts.st_size}\0{facts.st_mtime_ns}"
    key = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:24]
    return _in_folder(unpack(path, cache, key), path)


def _facts(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"EXECUTION_ENV_PATH: {path} does not exist; {_WANTED}") from None
    except (OSError, ValueError) as error:
        shown = repr(str(path)[:_SHOWN_CHARACTERS])
        if len(str(path)) > _SHOWN_CHARACTERS:
            shown += f"... ({len(str(path))} characters)"
        reason = (error.strerror if isinstance(error, OSError) else "") or error
        raise ConfigError(f"EXECUTION_ENV_PATH: {shown} cannot be looked at: {reason}; {_WANTED}") from None


def _check_archive(path: Path, facts: os.stat_result) -> None:
    kind = kind_of(facts.st_mode)
    if kind:
        raise ConfigError(f"EXECUTION_ENV_PATH: {path} is {kind}, not a regular file; {_WANTED}")
    # Files of the kernel's own (/proc) say so too, whatever can be read from them.
    if not facts.st_size:
        raise ConfigError(f"EXECUTION_ENV_PATH: {path} is empty (0 bytes); {_WANTED}")


def _in_folder(folder: Path, named: Path) -> Environment:
    for name in PYTHONS:
        # Not resolved: a virtual environment's python is known by the link's place.
        interpreter = folder / name
        if interpreter.exists():
            break
    else:
        raise ConfigError(
            f"EXECUTION_ENV_PATH: {named} holds no Python environment: looked for {', '.join(PYTHONS)} in it"
        )
    variables = {"PATH": os.pathsep.join([str(interpreter.parent), os.environ.get("PATH", os.defpath)])}
    if (folder / "pyvenv.cfg").exists():
        variables["VIRTUAL_ENV"] = str(folder)
    else:
        variables["CONDA_PREFIX"] = str(folder)
    return Environment(interpreter, variables)
