"""The load API's override: a model whose config, or whose files too, come with the request."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from bident.errors import Code, ServeError, invalid_arg
from bident.model import pbtxt
from bident.model.confine import escapes
from bident.model.folder import ModelFolder, check_name
from bident.model.scratch import Scratch

_PREFIX = "file:"
_LONGEST_PART = 255
_LONGEST_NAME = 1024


def materialise(
    name: str, base: Path | None, config_json: str | None, files: dict[str, bytes], root: Path
) -> ModelFolder:
    """The folder to load instead of the repository's.

    ``files`` maps ``file:<version>/<path>`` to contents: when there are any, a fresh folder below
    ``root`` holds exactly these and stands in for ``base``. With ``config_json`` alone, ``base``
    keeps its files. ``base`` is the model's folder in the repository, None when it has none.
    Call the result's ``remove`` once nothing uses it any more.

    Raises ServeError: a name outside the folder, files without a config, a disk that refuses.
    """
    check_name(name)
    config = None if config_json is None else pbtxt.parse_json(config_json, f"load parameter 'config' of '{name}'")
    if files:
        if config is None:
            raise invalid_arg(
                "Load parameter 'config' must be specified for model file override; "
                "add parameters.config with the model's config as a JSON string ('{}' if it can be derived)"
            )
        placed = {_checked(key): content for key, content in files.items()}
        if len(placed) < len(files):
            raise invalid_arg(f"the same file is given twice for model '{name}': with and without '{_PREFIX}'")
        _refuse_clashes(placed)
        scratch = _write(name, placed, root)
        return ModelFolder(name, scratch.path / name, config_override=config, scratch=scratch)
    if base is None:
        raise ServeError(
            Code.INTERNAL,
            f"failed to load '{name}', failed to poll from model repository: no folder of that name; "
            f"send its files too, as parameters '{_PREFIX}<version>/<file>'",
        )
    return ModelFolder(name, base, config_override=config)


def _checked(key: str) -> str:
    """The relative path that a parameter names, after refusing every doubtful one."""
    path = key.removeprefix(_PREFIX)
    shown = json.dumps(path[:80])
    if escapes(path):
        raise invalid_arg(
            f"Invalid file parameter {shown}: the path must stay within model directory; "
            "use a relative name with forward slashes, such as '1/model.onnx'"
        )
    parts = path.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        raise invalid_arg(
            f"Invalid file parameter {shown}: it has an empty or dotted part; name it such as '1/model.onnx'"
        )
    if len(path) > _LONGEST_NAME or any(len(_encoded(part, shown)) > _LONGEST_PART for part in parts):
        raise invalid_arg(
            f"Invalid file parameter {shown}: it has too long a name; at most {_LONGEST_PART} bytes between slashes"
        )
    return path


def _encoded(part: str, shown: str) -> bytes:
    try:
        return part.encode("utf-8")
    except UnicodeEncodeError:
        raise invalid_arg(f"Invalid file parameter {shown}: it is not valid Unicode; rename it") from None


def _refuse_clashes(paths: Iterable[str]) -> None:
    """Refuse a file that would have to be a folder too: '1' beside '1/model.onnx'."""
    files = set(paths)
    for path in files:
        for parent in PurePosixPath(path).parents:
            if str(parent) in files:
                raise invalid_arg(
                    f"Invalid file parameter {json.dumps(str(parent)[:80])}: it is also the folder of "
                    f"{json.dumps(path[:80])}; rename one of them"
                )


def _write(name: str, files: dict[str, bytes], root: Path) -> Scratch:
    try:
        scratch = Scratch.make(root)
    except OSError as error:
        raise _disk(name, error) from error
    # The model's folder keeps its name (backends see it), so the unique part goes above it.
    directory = scratch.path / name
    try:
        directory.mkdir()
        for path, content in files.items():
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    except BaseException as error:
        scratch.remove()
        if isinstance(error, OSError):
            raise _disk(name, error) from error
        raise
    return scratch


def _disk(name: str, error: OSError) -> ServeError:
    where = f" ({error.filename})" if error.filename else ""
    return ServeError(
        Code.INTERNAL,
        f"failed to load '{name}': cannot write its override files: {error.strerror or error}{where}; "
        "check the space and the rights of the server's temporary folder (TMPDIR)",
    )
