"""EXECUTION_ENV_PATH: which Python runs a model."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import numpy as np
import pytest
from worker_driving import MODELS

from bident.backends.python.environment import environment_of
from bident.backends.python.messages import Request
from bident.errors import ConfigError

WHERE = """
import sys, os
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        words = [sys.prefix, np.__version__, os.environ.get("VIRTUAL_ENV", ""), os.environ.get("CONDA_PREFIX", "")]
        words = np.array([word.encode() for word in words], dtype=np.object_)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", words)]) for _ in requests]
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment with numpy."""
    folder = tmp_path_factory.mktemp("environments") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(np.__file__).parent.parent
    (target,) = folder.glob("lib/python*/site-packages")
    for name in ("numpy", "numpy.libs"):
        if (site / name).exists():
            (target / name).symlink_to(site / name)
    return folder


def answered(start_worker, folder, environment):
    driver = start_worker(folder, interpreter=environment.interpreter, environment=environment.variables)
    reply = driver.run(Request(inputs={"IN": np.zeros(1)}))[0]
    assert reply.error is None, reply.error
    return [item.decode() for item in reply.outputs["OUT"]]


def test_no_parameter_means_the_servers_own(tmp_path):
    assert environment_of("", tmp_path, tmp_path).interpreter == Path(sys.executable)


def test_a_virtual_environment_runs_the_model(start_worker, write_model, environment, tmp_path):
    found = environment_of(str(environment), tmp_path, tmp_path / "cache")
    assert answered(start_worker, write_model(WHERE), found)[::2] == [str(environment), str(environment)]


def test_the_models_folder_can_be_named(start_worker, write_model, environment, tmp_path):
    folder = write_model(WHERE)
    (folder / "env").symlink_to(environment)
    found = environment_of("$$TRITON_MODEL_DIRECTORY/env", folder, tmp_path / "cache")
    assert answered(start_worker, folder, found)[0] == str(folder / "env")


@pytest.mark.parametrize("extension", ["tar", "tar.gz"])
def test_an_archive_is_unpacked_once(start_worker, write_model, environment, tmp_path, extension):
    archive = tmp_path / f"env.{extension}"
    with tarfile.open(archive, "w:gz" if extension.endswith("gz") else "w") as tar:
        for name in ("bin", "lib", "pyvenv.cfg"):
            tar.add(environment / name, name)
    cache = tmp_path / "cache"
    found = environment_of(str(archive), tmp_path, cache)
    prefix = answered(start_worker, write_model(WHERE), found)[0]
    assert Path(prefix).parent == cache
    (Path(prefix) / "mark").touch()
    again = environment_of(str(archive), tmp_path, cache)
    assert again == found
    assert (Path(prefix) / "mark").exists()
    with tarfile.open(archive, "w") as tar:
        tar.add(environment / "bin", "bin")
    assert environment_of(str(archive), tmp_path, cache).interpreter != found.interpreter
    assert not list(cache.glob("unpacking-*"))


def test_what_is_no_environment_is_refused(tmp_path):
    cache = tmp_path / "cache"
    with pytest.raises(ConfigError, match="does not exist"):
        environment_of(str(tmp_path / "nowhere"), tmp_path, cache)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no Python environment: looked for bin/python3"):
        environment_of(str(tmp_path / "empty"), tmp_path, cache)
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(ConfigError, match="cannot be unpacked"):
        environment_of(str(tmp_path / "text"), tmp_path, cache)
    assert not list(cache.iterdir())


def test_an_archive_cannot_write_outside(tmp_path):
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(MODELS / "identity" / "1" / "model.py", "../escaped.py")
    with pytest.raises(ConfigError, match="cannot be unpacked"):
        environment_of(str(archive), tmp_path, tmp_path / "cache")
    assert not (tmp_path / "cache" / "escaped.py").exists()


def test_an_environment_without_numpy_says_so(tmp_path, start_worker):
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    found = environment_of(str(tmp_path / "bare"), tmp_path, tmp_path)
    from bident.errors import ServeError

    with pytest.raises(ServeError) as refused:
        start_worker("identity", interpreter=found.interpreter, environment=found.variables)
    first, *rest = refused.value.message.splitlines()
    assert first == f"the environment needs numpy: {found.interpreter} -m pip install numpy"
    assert rest[0].startswith("Stub process 'identity_0_0' is not healthy. Its process exited with code 71")


@pytest.fixture(scope="module")
def numpy_1(tmp_path_factory):
    """The Python of an environment with numpy 1."""
    folder = tmp_path_factory.mktemp("numpy1") / "venv"
    uv = str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True, timeout=60)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), "numpy==1.26.4"], check=True, timeout=100)
    return python


@pytest.mark.parametrize("array", [np.array([b"", "é".encode()], object), np.zeros((0, 2)), np.ones(3, "f2"),
                                   np.array([True, False]), np.arange(90_000, dtype=np.uint8)])  # fmt: skip
def test_numpy_1_speaks_with_numpy_2(start_worker, numpy_1, array):
    driver = start_worker("identity", interpreter=numpy_1)
    output = driver.run(Request(inputs={"IN0": array}))[0].outputs["OUT0"]
    assert output.dtype == array.dtype
    np.testing.assert_array_equal(output, array)


def test_the_workers_code_is_python_3_9():
    import ast

    import bident.backends.python as package

    files = list((Path(package.__file__).parent / "worker").rglob("*.py"))
    assert len(files) > 15
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 9))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                level = getattr(node, "level", 0)
                for name in names:
                    top = name.partition(".")[0]
                    allowed = level or top in sys.stdlib_module_names or top in ("numpy", "bident_worker")
                    assert allowed, f"{file} imports {name}"
