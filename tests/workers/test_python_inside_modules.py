"""Models in one process: each has modules of its own, and leaves nothing behind."""

from __future__ import annotations

import os
import sys

import pytest
from inside_site import asked, in_loop, write

from bident.backends.base import BackendOptions, Device, ModelFiles
from bident.backends.python import PythonBackend
from bident.backends.python.worker.bident_worker import api
from bident.errors import ConfigError, ServeError
from bident.model import pbtxt
from bident.model.config import ModelConfig

MODEL = """
import numpy as np
import triton_python_backend_utils as pb
{imports}

class TritonPythonModel:
    def execute(self, requests):
        {before}
        out = np.array([{value}])
        return [pb.InferenceResponse([pb.Tensor("OUT", out)]) for _ in requests]
"""

PICKLE = b"cshared\nThing\n)R."
"""A Thing, as the module ``shared`` has it."""


def source(imports="", value="helpers.WHO", before="pass"):
    return MODEL.format(imports=imports, value=value, before=before)


async def value(site):
    return (await site.run(asked({}))).output("OUT")[0]


@pytest.mark.parametrize(
    ("imports", "before", "named"),
    [
        ("import helpers", "pass", "helpers.WHO"),
        ("from . import helpers", "pass", "helpers.WHO"),
        ("from helpers import WHO", "pass", "WHO"),
        ("import helpers.inner", "pass", "helpers.inner.WHO"),
        ("from helpers import inner as deep", "pass", "deep.WHO"),
        ("from helpers.inner import WHO", "pass", "WHO"),
        ("", "import helpers", "helpers.WHO"),
        ("", "import importlib; helpers = importlib.import_module('helpers')", "helpers.WHO"),
        ("import chain", "pass", "chain.helpers.WHO"),
    ],
)
@in_loop
async def test_models_have_neighbours_of_one_name(start, tmp_path, imports, before, named):
    sites = []
    for who in (1, 2):
        folder = write(tmp_path / f"m{who}", source(imports, named, before), chain="import helpers")
        (folder / "1" / "helpers").mkdir()
        for file in ("__init__.py", "inner.py"):
            (folder / "1" / "helpers" / file).write_text(f"WHO = {who}")
        sites.append(await start(folder))
    for _ in range(2):
        assert [await value(site) for site in sites] == [1, 2]
    assert "helpers" not in sys.modules


@in_loop
async def test_neighbours_beside_the_versions_and_what_a_pickle_names(start, tmp_path):
    reading = f"import shared, pickle\nDATA = {PICKLE!r}"
    folder = write(tmp_path, source(reading, "pickle.loads(DATA).who, shared.WHO"))
    (folder / "shared.py").write_text("WHO = 4\nclass Thing: who = 3")
    site = await start(folder)
    assert (await site.run(asked({}))).output("OUT").tolist() == [3, 4]


@in_loop
async def test_an_installed_package_comes_first(start, tmp_path):
    site = await start(write(tmp_path, source("import colorsys", "hasattr(colorsys, 'WHO')"), colorsys="WHO = 1"))
    assert not await value(site)


@in_loop
async def test_a_model_that_is_loaded_anew_is_read_anew(start, tmp_path):
    for who in (1, 2):
        site = await start(write(tmp_path, source("import helpers"), helpers=f"WHO = {who}"))
        assert await value(site) == who
    assert not list(tmp_path.rglob("__pycache__"))


@in_loop
async def test_instances_of_one_model_share_nothing(start, tmp_path):
    counting = "helpers.COUNT.append(1)"
    folder = write(tmp_path, source("import helpers", "len(helpers.COUNT)", counting), helpers="COUNT = []")
    sites = [await start(folder), await start(folder)]
    assert [await value(site) for site in (*sites, *sites)] == [1, 1, 2, 2]


@in_loop
async def test_nothing_is_left_of_a_model(start, tmp_path):
    await (await start("identity")).instance.close()  # what all models need is installed now
    before = set(sys.modules), list(sys.path), len(sys.meta_path), len(sys.path_hooks)
    site = await start(write(tmp_path, source("import helpers"), helpers="WHO = 1"))
    assert await value(site) == 1
    await site.instance.close()
    assert (set(sys.modules), list(sys.path), len(sys.meta_path), len(sys.path_hooks)) == before
    assert not [path for path in sys.path_importer_cache if path.startswith(str(tmp_path))]


@in_loop
async def test_the_api_is_the_workers(start, tmp_path):
    await start("identity")
    import triton_python_backend_utils as pb  # type: ignore[import-not-found]

    assert pb.Tensor is api.Tensor
    assert set(api.__all__) <= set(vars(pb))


# As the backend loads it

CONFIG = 'name: "m" backend: "python" parameters { key: "LANE" value { string_value: "thread" } }'


def config(more=""):
    return ModelConfig.from_proto(pbtxt.parse(f"{CONFIG} {more}".encode(), "config.pbtxt"))


COMPLETES = """
class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        {body}
        return config
    def execute(self, requests):
        return []
"""


@pytest.fixture
def backend(tmp_path):
    return PythonBackend(BackendOptions(cache_directory=tmp_path / "cache"))


def test_a_config_is_completed_in_the_server(backend, tmp_path):
    body = "import os; os.environ['SEEN'] = '1'; config.add_input({'name': 'I', 'data_type': 'TYPE_FP32', 'dims': [4]})"
    folder = write(tmp_path / "m", COMPLETES.format(body=body))
    completed = backend.complete(ModelFiles(folder, 1), config())
    assert list(completed.inputs) == ["I"]
    assert os.environ.pop("SEEN") == "1"


def test_a_config_that_cannot_be_completed_says_why(backend, tmp_path):
    folder = write(tmp_path / "m", COMPLETES.format(body="raise ValueError('no €')"))
    with pytest.raises(ServeError, match="ValueError: no €"):
        backend.complete(ModelFiles(folder, 1), config())


def test_another_environment_cannot_be_had(backend, tmp_path):
    folder = write(tmp_path / "m", source(value="1"))
    more = 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "/somewhere" } }'
    with pytest.raises(ConfigError, match=r"LANE 'thread'.*EXECUTION_ENV_PATH"):
        backend.load(ModelFiles(folder, 1), config(more), Device())
