"""Models loaded and unloaded over both doors. Every case leaves the repository as it found it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from cases_of_bodies import KINDS
from judged_case import Case, case
from judged_grpc import call
from judged_http import get, post
from judged_question import Question, vector
from judged_repository import SOURCE
from tritonclient.grpc import service_pb2 as pb

INDEX = post("/v2/repository/index", {"ready": True})
ASK = Question("override", (vector("X", "INT32", 1, 2),))


def _load(model: str = "override", body: Any = b"") -> Any:
    return post(f"/v2/repository/models/{model}/load", body)


def _unload(model: str = "override", body: Any = b"") -> Any:
    return post(f"/v2/repository/models/{model}/unload", body)


def _with(**parameters: Any) -> dict[str, Any]:
    return {"parameters": parameters}


def _config(model: str = "override", **changes: Any) -> str:
    """The config of the ensemble ``override``, or of a Python model."""
    step = {"model_name": "versions", "model_version": -1, "input_map": {"X": "X"}, "output_map": {"Y": "Y"}}
    kind = {"platform": "ensemble", "ensemble_scheduling": {"step": [step]}}
    if model != "override":
        kind = {"backend": "python", "parameters": {"kind": {"string_value": "identity"}}}
    given = {
        "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [-1]}],
        "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [-1]}],
    }
    return json.dumps({**kind, **given, **changes})


FILES = {"file:1/model.py": base64.b64encode(SOURCE.read_bytes()).decode()}


def indices() -> Iterator[Case]:
    for name, body in {
        "empty": b"",
        "an object": {},
        "ready": {"ready": True},
        "not ready": {"ready": False},
        "text": {"ready": "x"},
        "a number": {"ready": 1},
        "null": {"ready": None},
        "an array": [],
        "unknown": {"x": 1},
        "broken": b"{",
    }.items():
        yield case(f"http index, {name}", post("/v2/repository/index", body))


def loads() -> Iterator[Case]:
    ask = post(ASK.path, ASK.json_body())
    yield case("http load and unload", ask, _load(), ask, INDEX, _load(), ask, _unload(), ask, INDEX, _unload())
    for model in ("nobody", "broken", "a%20b", "..", "%2e%2e", "a%2Fb", "%20"):
        yield case(f"http load {model}", _load(model))
        if model != "broken":
            yield case(f"http unload {model}", _unload(model))
    for name, body in {
        "an object": {},
        "no parameters": {"parameters": {}},
        "parameters null": {"parameters": None},
        "parameters an array": {"parameters": []},
        "unknown key": {"x": 1},
        "unknown parameter": _with(x="y"),
        "broken": b"{",
        "an array": [],
        "config": _with(config=_config()),
        "config, other dims": _with(config=_config(max_batch_size=4)),
        "config that is none": _with(config="{"),
        "config empty": _with(config=""),
        "config of another field": _with(config='{"nothing": 1}'),
        "config of another name": _with(config=_config(name="other")),
        "config, unknown backend": _with(config=_config("made", backend="nothing")),
        "file without config": _with(**FILES),
        "file and config": _with(config=_config(), **FILES),
        "file that is not base64": _with(config=_config(), **{"file:1/model.py": "!"}),
        "file outside": _with(config=_config(), **{"file:../x": "YQ=="}),
        "file for no version": _with(config=_config(), **{"file:model.py": "YQ=="}),
        **{
            f"config is {kind}": _with(config=value)
            for kind, value in KINDS.items()
            if kind not in ("text", "digits", "no text")
        },
    }.items():
        yield case(
            f"http load with {name}", _load(body=body), ask, get("/v2/models/override/config"), _load(), _unload()
        )
    yield case(
        "http load what is not there, with files",
        _load("made", _with(config=_config("made"), **FILES)),
        _unload("made"),
    )
    for name, body in {
        "dependents": _with(unload_dependents=True),
        "no dependents": _with(unload_dependents=False),
        "dependents text": _with(unload_dependents="x"),
        "unknown": _with(x=True),
        "broken": b"{",
        "an array": [],
    }.items():
        yield case(f"http unload with {name}", _load(), _unload(body=body), ask, _unload())


def calls() -> Iterator[Case]:
    ask = call("ModelInfer", ASK.message(raw=True))
    index = call("RepositoryIndex", pb.RepositoryIndexRequest(ready=True))
    yield case("grpc load and unload", ask, _loads(), ask, index, _unloads(), ask, index, _unloads())
    for model in ("nobody", "broken", "", " ", "a/b", ".."):
        yield case(f"grpc load {model!r}", _loads(model))
        if model != "broken":
            yield case(f"grpc unload {model!r}", _unloads(model))
    source = SOURCE.read_bytes()
    for name, given in {
        "config": {"config": _config()},
        "config that is none": {"config": "{"},
        "config of a number": {"config": 5},
        "config of bytes": {"config": _config().encode()},
        "unknown": {"x": "y"},
        "file without config": {"file:1/model.py": source},
        "file and config": {"config": _config(), "file:1/model.py": source},
        "file of text": {"config": _config(), "file:1/model.py": "x"},
        "file outside": {"config": _config(), "file:../x": b"a"},
    }.items():
        config = call("ModelConfig", pb.ModelConfigRequest(name="override"))
        yield case(f"grpc load with {name}", _loads(**given), ask, config, _loads(), _unloads())
    for name, given in {
        "dependents": {"unload_dependents": True},
        "text": {"unload_dependents": "x"},
        "x": {"x": 1},
    }.items():
        yield case(f"grpc unload with {name}", _loads(), _unloads(**given), ask, _unloads())
    for repository in ("x",):
        request = pb.RepositoryModelLoadRequest(repository_name=repository, model_name="override")
        yield case("grpc load from a repository", call("RepositoryModelLoad", request))
        gone = pb.RepositoryModelUnloadRequest(repository_name=repository, model_name="override")
        yield case("grpc unload from a repository", call("RepositoryModelUnload", gone))


def _loads(_model: str = "override", **parameters: Any) -> Any:
    return call(
        "RepositoryModelLoad", _told(pb.RepositoryModelLoadRequest(model_name=_model), parameters), seconds=20.0
    )


def _unloads(_model: str = "override", **parameters: Any) -> Any:
    return call("RepositoryModelUnload", _told(pb.RepositoryModelUnloadRequest(model_name=_model), parameters))


def _told(request: Any, parameters: dict[str, Any]) -> Any:
    for key, value in parameters.items():
        member = {bool: "bool_param", int: "int64_param", str: "string_param", bytes: "bytes_param"}[type(value)]
        setattr(request.parameters[key], member, value)
    return request


def cases() -> Iterator[Case]:
    for family in (indices, loads, calls):
        yield from family()
