"""EXECUTION_ENV_PATH: which Python runs a model."""

from __future__ import annotations

import errno
import gzip
import os
import random
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
    assert len([entry for entry in cache.iterdir() if entry.is_dir()]) == 2


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


@pytest.mark.parametrize("kind", ["pipe", "device", "empty", "memory"])
def test_only_regular_files_are_read(tmp_path, kind):
    """A pipe would hold the load up for ever, /dev/zero too."""
    paths = {"device": Path("/dev/zero"), "memory": Path("/proc/self/mem")}
    path = paths.get(kind, tmp_path / kind)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "empty":
        path.touch()
    elif not path.exists():
        path = Path("/dev/random")
    reasons = {"pipe": "is a named pipe, not a regular file", "device": "is a device, not a regular file"}
    with pytest.raises(ConfigError, match=reasons.get(kind, r"is empty \(0 bytes\)|is a device")) as refused:
        environment_of(str(path), tmp_path, tmp_path / "cache")
    assert str(path) in refused.value.message
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("parameter", "reason"),
    [
        ("/" + "a" * 5000, r"cannot be looked at: File name too long; name a virtual"),
        ("/a\0b", "cannot be looked at: .*null"),
        ("/dev/null/env", "/dev/null/env does not exist; name a virtual environment"),
    ],
)
def test_names_that_cannot_be(tmp_path, parameter, reason):
    with pytest.raises(ConfigError, match=reason) as refused:
        environment_of(parameter, tmp_path, tmp_path / "cache")
    assert len(refused.value.message) < 400


def small_archive(path, *, unpacking="", size=300_000, mode="w"):
    """An environment of links and a file or two, as ``conda-pack`` would lay it out."""
    source = path.parent / "source"
    (source / "bin").mkdir(parents=True)
    (source / "bin" / "python").symlink_to(sys.executable)
    (source / "noise").write_bytes(random.Random(5).randbytes(size))
    (source / "z").write_text("the last")
    if unpacking:
        (source / "bin" / "conda-unpack").write_text(unpacking)
    with tarfile.open(path, mode) as tar:
        for name in ("bin", "noise", "z"):
            tar.add(source / name, name)
    with tarfile.open(path) as tar:
        return [member.offset for member in tar.getmembers()]


def header_overwritten(data, headers):
    return data[: headers[-1]] + b"\xff" * 512 + data[headers[-1] + 512 :]


def header_zeroed(data, headers):
    return data[: headers[-2]] + bytes(1024) + data[headers[-2] + 1024 :]


DAMAGES = {
    "header overwritten": header_overwritten,
    "blocks of zeros": header_zeroed,
    "end cut off": lambda data, headers: data[: headers[-1]],
    "cut in a header": lambda data, headers: data[: headers[-1] + 100],
    "cut in a file": lambda data, headers: data[: headers[-1] - 2000],
    "half an end": lambda data, headers: data[: headers[-1] + 1024 + 512],
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("compressed", [False, True])
def test_a_damaged_archive_leaves_nothing_in_the_cache(tmp_path, damage, compressed):
    archive = tmp_path / "env.tar"
    headers = small_archive(archive)
    cache = tmp_path / "cache"
    assert environment_of(str(archive), tmp_path, cache).interpreter.exists()
    before = sorted(cache.iterdir())
    data = DAMAGES[damage](archive.read_bytes(), headers)
    archive.write_bytes(gzip.compress(data) if compressed else data)
    with pytest.raises(ConfigError, match=r"cannot be unpacked into .* damaged or no archive: copy it again"):
        environment_of(str(archive), tmp_path, cache)
    assert sorted(cache.iterdir()) == before


@pytest.mark.parametrize("damage", ["flipped", "checksum", "cut", "followed"])
def test_a_damaged_compression_leaves_nothing_in_the_cache(tmp_path, damage):
    archive = tmp_path / "env.tar.gz"
    small_archive(archive, mode="w:gz")
    data = bytearray(archive.read_bytes())
    if damage == "flipped":
        data[len(data) // 2 : len(data) // 2 + 64] = b"\xff" * 64
    elif damage == "checksum":
        data[-8] ^= 1
    elif damage == "cut":
        del data[-9:]
    else:
        data += b"something else"
    archive.write_bytes(data)
    with pytest.raises(ConfigError, match=r"cannot be unpacked into .* damaged or no archive: copy it again"):
        environment_of(str(archive), tmp_path, tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_a_full_disk_leaves_nothing_in_the_cache(tmp_path, monkeypatch):
    archive = tmp_path / "env.tar"
    small_archive(archive)

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tarfile, "copyfileobj", full)
        with pytest.raises(
            ConfigError, match=r"No space left on device; make room there, or .*--model-cache-directory"
        ):
            environment_of(str(archive), tmp_path, tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())
    assert environment_of(str(archive), tmp_path, tmp_path / "cache").interpreter.exists()


def test_an_unusable_cache_folder_names_its_setting(tmp_path):
    archive = tmp_path / "env.tar"
    small_archive(archive)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cache folder .* cannot be used: .*--model-cache-directory"):
        environment_of(str(archive), tmp_path, tmp_path / "file" / "cache")
    with pytest.raises(ConfigError, match=r"cache folder .* cannot be used: .*--model-cache-directory"):
        environment_of(str(archive), tmp_path, tmp_path / "file")


def test_conda_unpack_runs_where_the_environment_stays(tmp_path):
    archive = tmp_path / "env.tar"
    small_archive(
        archive, unpacking="from pathlib import Path; Path(__file__).with_name('prefix').write_text(__file__)"
    )
    folder = environment_of(str(archive), tmp_path, tmp_path / "cache").interpreter.parent
    assert (folder / "prefix").read_text() == str(folder / "conda-unpack")


def test_a_broken_conda_unpack_leaves_nothing_in_the_cache(tmp_path):
    archive = tmp_path / "env.tar"
    small_archive(archive, unpacking="print('looking around'); raise SystemExit('no such prefix')")
    with pytest.raises(ConfigError, match=r"bin/conda-unpack fails \(exit code 1: no such prefix\); pack .* again"):
        environment_of(str(archive), tmp_path, tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_a_python_that_cannot_run_conda_unpack_is_told(tmp_path):
    archive = tmp_path / "env.tar"
    source = tmp_path / "source" / "bin"
    source.mkdir(parents=True)
    (source / "python").write_bytes(b"no program")
    (source / "conda-unpack").touch()
    with tarfile.open(archive, "w") as tar:
        tar.add(source, "bin")
    with pytest.raises(ConfigError, match=r"bin/conda-unpack fails \(.*Permission denied"):
        environment_of(str(archive), tmp_path, tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


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
