import os

import pytest

from bident.errors import ConfigError
from bident.model import labels, pbtxt
from bident.model.config import ModelConfig


def config(*filenames):
    text = " ".join(
        f'output {{ name: "o{index}" data_type: TYPE_FP32 dims: 2 label_filename: "{filename}" }}'
        for index, filename in enumerate(filenames)
    )
    return ModelConfig.from_proto(pbtxt.parse(text.encode(), "x"))


def test_one_label_per_line_for_outputs_that_declare_a_file(tmp_path):
    (tmp_path / "labels.txt").write_text("cat\ndog, or é\n\nlast", "utf-8")
    assert labels.load(tmp_path, config("", "labels.txt")) == {"o1": ["cat", "dog, or é", "", "last"]}


def test_windows_line_ends_and_byte_order_mark_are_no_part_of_a_label(tmp_path):
    (tmp_path / "labels.txt").write_bytes(b"\xef\xbb\xbfcat\r\ndog\r\n")
    assert labels.load(tmp_path, config("labels.txt")) == {"o0": ["cat", "dog"]}


def test_a_missing_file_names_its_neighbour(tmp_path):
    (tmp_path / "Labels.TXT").touch()
    with pytest.raises(
        ConfigError, match=r"failed to open text file for read .*labels\.txt.*did you mean 'Labels\.TXT'\?"
    ):
        labels.load(tmp_path, config("labels.txt"))


@pytest.mark.parametrize("name", ["../labels.txt", "/etc/passwd", "a/../../x", "C:\\\\labels.txt"])
def test_a_file_outside_the_folder_is_never_read(name, tmp_path):
    with pytest.raises(ConfigError, match="must stay within model directory"):
        labels.load(tmp_path / "m", config(name))


def test_other_encodings_and_kinds_are_refused(tmp_path):
    (tmp_path / "latin.txt").write_bytes(b"ok\ncaf\xe9\n")
    with pytest.raises(ConfigError, match="not UTF-8 text at line 2"):
        labels.load(tmp_path, config("latin.txt"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="check its kind"):
        labels.load(tmp_path, config("folder"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="it is not a regular file"):
        labels.load(tmp_path, config("pipe"))
