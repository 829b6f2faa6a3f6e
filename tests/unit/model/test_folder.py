import os

import pytest

from bident.errors import ConfigError, ServeError
from bident.model import pbtxt
from bident.model.folder import ModelFolder, check_name, version_of


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "m").mkdir()
    return ModelFolder("m", tmp_path / "m")


def versions(folder, *names):
    for name in names:
        (folder.directory / name).mkdir()
    return folder


def config(folder, text, name="config.pbtxt"):
    path = folder.directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return folder


def test_versions_are_numbers_above_0_without_leading_zeros(folder):
    noise = ["0", "01", "-5", "+9", "1e3", "x", "1.0", "\u0661", "warmup", "configs", "initial_state", "9" * 30, " 4"]
    versions(folder, "10", "2", "1", *noise)
    (folder.directory / "7").write_text("a file")
    (folder.directory / "3").symlink_to(folder.directory / "2")
    assert folder.versions() == [1, 2, 3, 10]
    assert version_of(str(2**63 - 1)) == 2**63 - 1
    assert version_of(str(2**63)) is None


@pytest.mark.parametrize(
    ("policy", "selected"),
    [
        ("", [7]),
        ("version_policy { latest { num_versions: 2 } }", [3, 7]),
        ("version_policy { latest { num_versions: 9 } }", [1, 3, 7]),
        ("version_policy { all { } }", [1, 3, 7]),
        ("version_policy { }", [1, 3, 7]),
        ("version_policy { specific { versions: [ 7, 1, 7, 4 ] } }", [1, 7]),
    ],
)
def test_the_policy_selects(folder, policy, selected):
    versions(folder, "1", "3", "7")
    assert folder.select_versions(pbtxt.parse(policy.encode(), "x")) == selected


@pytest.mark.parametrize(
    ("names", "text", "cure"),
    [
        ([], "", r"make the folder .*1, holding the model file"),
        ([], 'platform: "ensemble"', "an empty folder, as an ensemble has no files"),
        (["01"], "", "'01' is no version folder"),
        (["1"], "version_policy { latest { num_versions: 0 } }", "change version_policy"),
        (["1"], "version_policy { specific { versions: 4 } }", "the folder holds '1'"),
    ],
)
def test_no_version_is_an_error_with_its_cure(folder, names, text, cure):
    versions(folder, *names)
    with pytest.raises(ConfigError, match=cure) as refused:
        folder.select_versions(pbtxt.parse(text.encode(), "x"))
    assert refused.value.message.startswith(
        "at least one version must be available under the version policy of model 'm'"
    )


def test_the_name_comes_from_the_folder_and_must_agree(folder):
    assert folder.raw_config().name == "m"
    assert config(folder, 'name: "m" max_batch_size: 2').raw_config().max_batch_size == 2
    config(folder, 'name: "m_v2"')
    with pytest.raises(ConfigError, match="unexpected directory name 'm' for model 'm_v2', directory name must equal"):
        folder.raw_config()


def test_a_config_may_be_required(folder):
    strict = ModelFolder("m", folder.directory, auto_complete=False)
    with pytest.raises(ConfigError, match=r"failed to open text file for read .*config\.pbtxt"):
        strict.raw_config()


def test_a_named_config_is_used_where_it_exists(folder):
    config(folder, "max_batch_size: 1")
    config(folder, "max_batch_size: 2", "configs/big.pbtxt")
    chosen = [ModelFolder("m", folder.directory, config_name=name).raw_config() for name in ("big", "absent", "")]
    assert [proto.max_batch_size for proto in chosen] == [2, 1, 1]


def test_an_override_replaces_the_file_and_is_not_changed(folder):
    config(folder, "max_batch_size: 1 backend: 'python'")
    override = pbtxt.parse_json('{"max_batch_size":2}', "x")
    proto = ModelFolder("m", folder.directory, config_override=override).raw_config()
    assert (proto.max_batch_size, proto.backend, proto.name) == (2, "", "m")
    assert override.name == ""


def test_a_config_that_is_a_folder_is_refused_in_words(folder):
    (folder.directory / "config.pbtxt").mkdir()
    with pytest.raises(ConfigError, match="failed to open text file for read"):
        folder.raw_config()


def test_a_folder_that_is_gone_is_refused_in_words(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the folder of model 'gone'"):
        ModelFolder("gone", tmp_path / "gone").versions()


@pytest.mark.parametrize("name", ["", " ", "\t", "..", "a/b", "/etc", "a..b", "a\\b", "a\0b"])
def test_names_that_lead_elsewhere_are_refused(name):
    with pytest.raises(ServeError, match=r"Model name cannot be empty|must not contain path traversal characters"):
        check_name(name)


@pytest.mark.parametrize("name", [".", ".git", ".m", "lost+found"])
def test_hidden_names_are_refused(name):
    with pytest.raises(ServeError, match="hidden folder"):
        check_name(name)


def test_a_name_that_is_no_text_is_refused_in_text():
    with pytest.raises(ServeError, match="not valid Unicode") as refused:
        check_name("bad\udcff")
    assert refused.value.message.encode().decode() == refused.value.message


def test_a_link_to_itself_costs_only_itself(folder):
    (versions(folder, "1").directory / "loop").symlink_to("loop")
    (folder.directory / "7").symlink_to("7")
    assert folder.versions() == [1]
    assert folder.warnings() == []


@pytest.mark.parametrize("what", ["pipe", "device"])
def test_a_config_that_is_no_file_is_refused_and_not_waited_for(folder, what):
    path = folder.directory / "config.pbtxt"
    if what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="it is not a regular file"):
        folder.raw_config()


def test_what_is_not_read_is_told(folder):
    assert versions(folder, "1").warnings() == []
    config(versions(folder, "02"), "max_batch_size: 1", "config.pbtxt.txt")
    assert folder.warnings() == [
        "model 'm' has no config.pbtxt: rename 'config.pbtxt.txt' to 'config.pbtxt'",
        "ignore version directory '02' of model 'm' which contains leading zeros in its directory name",
    ]
    config(folder, "")
    assert len(folder.warnings()) == 1


def touch(path, text=b""):
    path.write_bytes(text)


CHANGES = {
    "content": lambda root: touch(root / "1" / "model.onnx", b"longer"),
    "time": lambda root: os.utime(root / "config.pbtxt", ns=(1, 1)),
    "label": lambda root: touch(root / "labels.txt"),
    "version": lambda root: (root / "2").mkdir(),
    "deep": lambda root: touch(root / "1" / "lib" / "net.py", b"x"),
    "removed": lambda root: (root / "1" / "model.onnx").unlink(),
    "replaced": lambda root: replace(root / "1" / "model.onnx"),
    "renamed": lambda root: (root / "1" / "model.onnx").rename(root / "1" / "other.onnx"),
    "linked": lambda root: touch(root.parent / "shared.bin", b"new contents"),
}


def replace(path):
    """Another file of the same size and time in its place."""
    times = path.stat()
    twin = path.with_name("twin")
    twin.write_bytes(b"twin"[: times.st_size])
    os.utime(twin, ns=(times.st_atime_ns, times.st_mtime_ns))
    twin.replace(path)


@pytest.fixture
def whole(folder):
    versions(folder, "1", "1/lib")
    touch(folder.directory / "1" / "model.onnx")
    touch(folder.directory / "1" / "lib" / "net.py")
    touch(folder.directory.parent / "shared.bin")
    (folder.directory / "1" / "shared.bin").symlink_to(folder.directory.parent / "shared.bin")
    return config(folder, "max_batch_size: 1")


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_noticed(whole, change):
    before = whole.fingerprint()
    assert hash(before) == hash(whole.fingerprint())
    CHANGES[change](whole.directory)
    assert whole.fingerprint() != before


@pytest.mark.parametrize(
    "name", [".config.pbtxt.swp", "config.pbtxt~", "#config.pbtxt#", ".git/HEAD", "1/__pycache__/a.pyc"]
)
def test_what_editors_and_python_leave_behind_is_not_a_change(whole, name):
    before = whole.fingerprint()
    path = whole.directory / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert whole.fingerprint() == before


def test_links_that_go_round_or_nowhere_end(whole):
    (whole.directory / "1" / "round").symlink_to(whole.directory)
    (whole.directory / "1" / "nowhere").symlink_to("absent")
    (whole.directory / "itself").symlink_to("itself")
    assert whole.fingerprint() == whole.fingerprint()


def test_folders_that_all_link_to_each_other_are_walked_once(whole, monkeypatch):
    names = [f"f{number}" for number in range(12)]
    for name in names:
        (whole.directory / name).mkdir()
        for other in names:
            (whole.directory / name / other).symlink_to(whole.directory / other)
    walks = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: walks.append(path) or scandir(path))

    before = whole.fingerprint()

    assert len(walks) <= len(names) + 4
    touch(whole.directory / "f11" / "weights")
    assert whole.fingerprint() != before


def test_a_link_moved_to_another_folder_that_is_there_anyway_is_noticed(whole):
    for name in ("a", "b"):
        (whole.directory / name).mkdir()
    link = whole.directory / "z"
    link.symlink_to("a")
    before = whole.fingerprint()
    link.unlink()
    link.symlink_to("b")
    assert whole.fingerprint() != before


def test_a_missing_folder_has_a_fingerprint_too(tmp_path):
    gone = ModelFolder("m", tmp_path / "gone").fingerprint()
    assert gone == ModelFolder("m", tmp_path / "gone").fingerprint()
