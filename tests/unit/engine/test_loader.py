"""From a folder to instances, or to nothing at all and a reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bident.backends.base import Instance, ModelFiles
from bident.engine import loader as loader_module
from bident.engine.loader import Loader
from bident.errors import Code, ConfigError, ServeError
from bident.model.config import ModelConfig
from bident.model.folder import ModelFolder
from tests.unit.engine.engine_fakes import BATCHING, IO, Echo, FakeBackend, FakeBackends, write_model

Make = Callable[[ModelFiles, ModelConfig], Instance]


def loader(make: Make = lambda files, config: Echo(), *, retries: int = 0) -> tuple[Loader, FakeBackend]:
    backend = FakeBackend(make)
    return Loader(FakeBackends(backend), retries=retries), backend  # type: ignore[arg-type]


def folder(repository: Path, text: str = BATCHING, *, versions: tuple[int, ...] = (1,)) -> ModelFolder:
    return ModelFolder("m", write_model(repository, "m", text, versions=versions))


def refusal(load: Loader, model: ModelFolder) -> ServeError:
    with pytest.raises(ServeError) as caught:
        load.load(model)
    return caught.value


def closed(backend: FakeBackend) -> list[int]:
    return [instance.closed for instance in backend.made]  # type: ignore[attr-defined]


ALL_VERSIONS = "version_policy { all { } }"
TWO_INSTANCES = "instance_group { count: 2 }"


def test_a_model_is_completed_and_loaded_once_for_each_instance_of_each_chosen_version(tmp_path: Path) -> None:
    load, backend = loader()
    loaded_files: list[Path] = []
    backend.make = lambda files, config: (loaded_files.append(files.version_directory), Echo())[1]

    model = folder(tmp_path, f"{BATCHING} {ALL_VERSIONS} {TWO_INSTANCES}", versions=(1, 3))
    loaded = load.load(model)

    assert {version: len(instances) for version, instances in loaded.instances.items()} == {1: 2, 3: 2}
    assert loaded_files == [model.directory / "1"] * 2 + [model.directory / "3"] * 2
    assert loaded.config.name == "m"
    assert loaded.config.dynamic_batching is not None
    assert loaded.config.dynamic_batching.preferred_batch_sizes == (8,)
    assert closed(backend) == [0] * 4


def test_only_the_latest_version_is_loaded_unless_said_otherwise(tmp_path: Path) -> None:
    load, _ = loader()

    assert list(load.load(folder(tmp_path, versions=(1, 2, 10))).instances) == [10]


@pytest.mark.parametrize(("cores", "instances", "threads"), [(8, 1, 8), (8, 2, 4), (8, 3, 2), (2, 4, 1)])
def test_instances_share_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, instances: int, threads: int
) -> None:
    monkeypatch.setattr(loader_module, "usable_cores", lambda: cores)
    load, backend = loader()

    load.load(folder(tmp_path, f"instance_group {{ count: {instances} }}"))

    assert [device.threads for device in backend.devices] == [threads] * instances


def test_a_backend_gives_the_number_of_instances_where_the_config_does_not(tmp_path: Path) -> None:
    load, backend = loader()
    backend.default_instance_count = 2  # type: ignore[misc]

    assert len(load.load(folder(tmp_path, "")).instances[1]) == 2


def test_labels_are_read_with_the_model(tmp_path: Path) -> None:
    load, _ = loader()
    model = folder(tmp_path)
    config = model.directory / "config.pbtxt"
    config.write_text(config.read_text().replace('name: "Y"', 'name: "Y" label_filename: "labels.txt"'))
    (model.directory / "labels.txt").write_text("cat\ndog\n")

    assert load.load(model).labels == {"Y": ["cat", "dog"]}


def test_what_a_backend_completes_is_what_is_loaded(tmp_path: Path) -> None:
    load, backend = loader()

    def complete(files: ModelFiles, config: ModelConfig) -> ModelConfig:
        proto = config.to_proto()
        proto.max_batch_size = 3
        return ModelConfig.from_proto(proto)

    backend.complete = complete  # type: ignore[method-assign]
    assert load.load(folder(tmp_path)).config.max_batch_size == 3
    as_written = Loader(FakeBackends(backend), auto_complete=False)  # type: ignore[arg-type]
    assert as_written.load(folder(tmp_path)).config.max_batch_size == 8


# Failures


def test_instances_of_a_load_that_fails_are_closed(tmp_path: Path) -> None:
    made = 0

    def make(files: ModelFiles, config: ModelConfig) -> Instance:
        nonlocal made
        made += 1
        if made == 4:
            raise MemoryError("out of memory")
        return Echo()

    load, backend = loader(make)

    error = refusal(load, folder(tmp_path, f"{ALL_VERSIONS} {TWO_INSTANCES}", versions=(1, 2)))

    assert (error.code, error.message) == (Code.INVALID_ARG, "MemoryError: out of memory")
    assert closed(backend) == [1, 1, 1]


def test_an_instance_that_fails_to_close_neither_hides_the_reason_nor_keeps_the_others(tmp_path: Path) -> None:
    class Stubborn(Echo):
        def close(self) -> None:
            super().close()
            raise OSError("will not")

    def make(files: ModelFiles, config: ModelConfig) -> Instance:
        if files.version == 2 and len(backend.made) == 3:
            raise ConfigError("the second version is broken")
        return Stubborn()

    load, backend = loader(make)

    error = refusal(load, folder(tmp_path, f"{ALL_VERSIONS} {TWO_INSTANCES}", versions=(1, 2)))

    assert error.message == "the second version is broken"
    assert closed(backend) == [1, 1, 1]


def test_what_a_backend_raises_becomes_one_readable_line(tmp_path: Path) -> None:
    def make(files: ModelFiles, config: ModelConfig) -> Instance:
        raise ValueError("bad magic number\n" + "x" * 5000)

    error = refusal(loader(make)[0], folder(tmp_path))

    assert (error.code, error.message) == (Code.INVALID_ARG, "ValueError: bad magic number")


def test_a_model_that_tries_to_end_the_process_is_only_not_loaded(tmp_path: Path) -> None:
    def make(files: ModelFiles, config: ModelConfig) -> Instance:
        raise SystemExit(3)

    assert refusal(loader(make)[0], folder(tmp_path)).message == "SystemExit: 3"


def test_an_error_of_the_backend_that_is_already_readable_is_kept(tmp_path: Path) -> None:
    meant = ServeError(Code.UNSUPPORTED, "opset 99 is too new")

    def make(files: ModelFiles, config: ModelConfig) -> Instance:
        raise meant

    assert refusal(loader(make)[0], folder(tmp_path)) is meant


def test_completing_may_fail_like_loading(tmp_path: Path) -> None:
    load, backend = loader()

    def complete(files: ModelFiles, config: ModelConfig) -> ModelConfig:
        raise KeyError("graph")

    backend.complete = complete  # type: ignore[method-assign]

    assert refusal(load, folder(tmp_path)).message == "KeyError: 'graph'"


def test_whatever_goes_wrong_around_the_backend_is_an_answer_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(directory: Path, config: ModelConfig) -> dict[str, list[str]]:
        raise RecursionError("labels all the way down")

    monkeypatch.setattr("bident.model.labels.load", fail)

    assert refusal(loader()[0], folder(tmp_path)).message == "RecursionError: labels all the way down"


def test_loading_is_tried_again_as_often_as_asked(tmp_path: Path) -> None:
    attempts = 0

    def make(files: ModelFiles, config: ModelConfig) -> Instance:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise OSError("the share is away")
        return Echo()

    assert refusal(loader(make, retries=1)[0], folder(tmp_path)).message == "OSError: the share is away"
    assert attempts == 2
    attempts = 0
    assert list(loader(make, retries=2)[0].load(folder(tmp_path)).instances) == [1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dynamic_batching {", "config.pbtxt"),
        ("dynamic_batching { preferred_batch_size: [ 99 ] }", "preferred size must be <= max batch size"),
        (
            'parameters { key: "LANE" value { string_value: "gpu" } }',
            "parameter LANE is 'gpu'; use 'inline' or 'thread'",
        ),
        ("version_policy { specific { versions: [ 7 ] } }", "at least one version must be available"),
        ("instance_group { kind: KIND_GPU }", "no GPUs are available"),
    ],
)
def test_a_config_that_cannot_be_served_is_refused_before_anything_is_loaded(
    tmp_path: Path, text: str, words: str
) -> None:
    load, backend = loader()

    error = refusal(load, folder(tmp_path, text))

    assert words in error.message
    assert backend.devices == []


def test_an_unknown_backend_is_named(tmp_path: Path) -> None:
    model = folder(tmp_path)
    (model.directory / "config.pbtxt").write_text(f'backend: "nope" max_batch_size: 8 {IO}')

    assert "unable to find backend library for backend 'nope'" in refusal(loader()[0], model).message


def test_a_missing_label_file_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    load, backend = loader()
    model = folder(tmp_path)
    config = model.directory / "config.pbtxt"
    config.write_text(config.read_text().replace('name: "Y"', 'name: "Y" label_filename: "labels.txt"'))

    assert "labels.txt" in refusal(load, model).message
    assert backend.devices == []


# What will be tried


@pytest.mark.parametrize(
    ("text", "present", "expected"),
    [
        ("", (1,), [1]),
        ("", (1, 2, 3), [3]),
        ("version_policy { latest { num_versions: 2 } }", (1, 2, 3), [2, 3]),
        (ALL_VERSIONS, (1, 2), [1, 2]),
        ("version_policy { specific { versions: [ 1, 9 ] } }", (1, 2), [1]),
        ("this is no config", (4, 5), [5]),
        ("version_policy { specific { versions: [ 9 ] } }", (1, 2), [2]),
    ],
)
def test_the_versions_that_a_load_will_try(
    tmp_path: Path, text: str, present: tuple[int, ...], expected: list[int]
) -> None:
    assert loader()[0].versions(folder(tmp_path, text, versions=present)) == expected


def test_a_folder_that_cannot_be_read_has_no_versions_but_a_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the folder of model 'm'"):
        loader()[0].versions(ModelFolder("m", tmp_path / "m"))


def test_a_negative_count_is_the_default_as_by_triton_and_is_not_silent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load, _ = loader()
    loaded = load.load(folder(tmp_path, "instance_group { count: -5 }"))
    assert len(loaded.instances[1]) == 1
    assert "'m': the count of instance group 'm_0' is -5, taken as 1, as by Triton; write 1 or more" in caplog.text
