"""Where Python models keep what they fetch, and which Python runs them, through restarts of the server."""

from __future__ import annotations

import sys
import tarfile
import venv
from pathlib import Path

import numpy as np
import pytest
from asking import Asker, x
from model_folders import parameters
from python_folders import SAY, says, write_python
from serving import Launch

FETCHES = """
    def initialize(self, args):
        weights = Path(os.environ["HF_HOME"]) / "weights"
        how = "found" if weights.exists() else "fetched"
        weights.parent.mkdir(parents=True, exist_ok=True)
        weights.touch()
        self.words = [how, *(os.environ.get(name, "") for name in ("HF_HOME", "TORCH_HOME", "HF_TOKEN_PATH"))]
"""
PREFIX = "\n    def initialize(self, args):\n        self.words = [sys.prefix, np.__version__]\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "repository"
    made.mkdir()
    return made


def words(port: int, model: str) -> list[str]:
    return Asker(port).infer(model, x("FP32", [0])).data()


def test_what_a_model_has_fetched_is_there_after_a_restart(launch: Launch, repository: Path, tmp_path: Path) -> None:
    write_python(repository, "fetches", FETCHES + SAY, says())
    cache, home = tmp_path / "cache", tmp_path / "home"
    environment = {
        "HOME": str(home),
        "XDG_CACHE_HOME": "",
        "HF_HOME": "",
        "TORCH_HOME": "/elsewhere",
        "HF_TOKEN_PATH": "",
    }
    token = str(home / ".cache" / "huggingface" / "token")
    for how in ("fetched", "found"):
        server = launch(repository, f"--model-cache-directory={cache}", environment=environment)
        assert words(server.port, "fetches") == [how, str(cache / "huggingface"), "/elsewhere", token]
        server.stop()


def test_without_the_setting_it_is_the_users_cache(launch: Launch, repository: Path, tmp_path: Path) -> None:
    write_python(repository, "fetches", FETCHES + SAY, says())
    environment = {"XDG_CACHE_HOME": str(tmp_path / "caches"), "HF_HOME": ""}
    server = launch(repository, environment=environment)
    assert words(server.port, "fetches")[1] == str(tmp_path / "caches" / "bident" / "huggingface")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that has numpy."""
    folder = tmp_path_factory.mktemp("environments") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "numpy.pth").write_text(str(Path(np.__file__).parent.parent))
    return folder


def test_a_model_runs_in_its_own_environment(
    launch: Launch, repository: Path, environment: Path, tmp_path: Path
) -> None:
    write_python(repository, "folder", PREFIX + SAY, says() + parameters(EXECUTION_ENV_PATH=str(environment)))
    packed = write_python(
        repository,
        "packed",
        PREFIX + SAY,
        says() + parameters(EXECUTION_ENV_PATH="$$TRITON_MODEL_DIRECTORY/env.tar.gz"),
    )
    write_python(repository, "plain", PREFIX + SAY, says())
    with tarfile.open(packed / "env.tar.gz", "w:gz") as archive:
        for name in ("bin", "lib", "pyvenv.cfg"):
            archive.add(environment / name, name)
    cache = tmp_path / "cache"
    server = launch(repository, f"--model-cache-directory={cache}")

    assert words(server.port, "folder") == [str(environment), np.__version__]
    assert words(server.port, "plain") == [sys.prefix, np.__version__]
    prefix = Path(words(server.port, "packed")[0])
    assert prefix.parent == cache / "environments"
    server.stop()

    (prefix / "mark").touch()  # gone if it were unpacked anew
    again = launch(repository, f"--model-cache-directory={cache}")
    assert words(again.port, "packed") == [str(prefix), np.__version__]
    assert (prefix / "mark").exists()
    assert [path for path in (cache / "environments").iterdir() if path.is_dir()] == [prefix]


def test_an_environment_that_is_not_there_is_a_clear_refusal(launch: Launch, repository: Path) -> None:
    write_python(repository, "lost", PREFIX + SAY, says() + parameters(EXECUTION_ENV_PATH="/no/such/place"))
    server = launch(repository, "--model-control-mode=explicit")
    Asker(server.port).load("lost").refused("EXECUTION_ENV_PATH: /no/such/place does not exist")


# --backend-config=python,...


def test_tritons_keys_are_taken_and_said_to_do_what_they_do(launch: Launch, repository: Path) -> None:
    for name in ("one", "two"):
        write_python(repository, name, PREFIX + SAY, says())
    keys = (
        "shm-default-byte-size=1048576",
        "shm-growth-byte-size=1048576",
        "thread-pool-size=4",
        "stub-timeout-second=9",
    )
    server = launch(repository, *(f"--backend-config=python,{key}" for key in keys))
    log = server.log_text
    assert log.count("--backend-config=python,shm-default-byte-size has no effect") == 1
    assert log.count("--backend-config=python,thread-pool-size has no effect") == 1
    assert (
        log.count("python,stub-timeout-second is not known and has no effect; did you mean 'stub-timeout-seconds'?")
        == 1
    )


def test_the_stub_timeout_is_how_long_a_model_may_initialize(launch: Launch, repository: Path) -> None:
    write_python(
        repository,
        "hangs",
        "    def initialize(self, args):\n        import threading\n        threading.Event().wait()\n" + SAY,
        says(),
    )
    server = launch(repository, "--model-control-mode=explicit", "--backend-config=python,stub-timeout-seconds=0.5")
    Asker(server.port).load("hangs").refused(
        "'hangs_0' is not healthy. 'initialize' did not return within 0.5 seconds",
        "--backend-config=python,stub-timeout-seconds=N allows it more",
    )
    with_nonsense = launch(
        repository, "--model-control-mode=explicit", "--backend-config=python,stub-timeout-seconds=0"
    )
    Asker(with_nonsense.port).load("hangs").refused(
        "stub-timeout-seconds can't be smaller than or equal to zero: got '0'"
    )
