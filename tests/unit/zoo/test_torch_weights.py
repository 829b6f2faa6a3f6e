"""The checkpoint reader: right tensors from honest files, nothing at all from hostile ones."""

from __future__ import annotations

import os
import pickle
import struct
from collections import OrderedDict

import numpy as np
import pytest

from bident.errors import ServeError
from bident.zoo.torch_weights import read_tensors

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001


class Global:
    """Pickles as a reference to ``module.name`` without importing it."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class Rebuild:
    """Pickles as a call of torch's tensor constructor."""

    def __init__(self, storage, offset, shape, strides):
        self.arguments = (storage, offset, shape, strides, False, OrderedDict())


class Storage:
    def __init__(self, key, count, kind="FloatStorage"):
        self.pid = ("storage", Global("torch", kind), key, "cpu", count, None)


class TorchPickler(pickle._Pickler):
    """Python's own pickler, taught to write names it cannot import."""

    def persistent_id(self, obj):
        return obj.pid if isinstance(obj, Storage) else None

    def save(self, obj, save_persistent_id=True):
        if isinstance(obj, Global):
            self.write(f"c{obj.module}\n{obj.name}\n".encode())
        elif isinstance(obj, Rebuild):
            self.save(Global("torch._utils", "_rebuild_tensor_v2"))
            self.save(obj.arguments)
            self.write(pickle.REDUCE)
        else:
            super().save(obj, save_persistent_id)


def checkpoint(path, state, storages, magic=MAGIC):
    with path.open("wb") as file:
        for part in (magic, PROTOCOL, {"little_endian": True}, state, list(storages)):
            TorchPickler(file, 2).dump(part)
        for array in storages.values():
            file.write(struct.pack("<q", array.size) + array.tobytes())
    return path


def test_tensors_come_back_dense_transposed_and_shared(tmp_path):
    values = np.arange(12, dtype=np.float32)
    storage, count = Storage("1", 12), Storage("2", 1, "LongStorage")
    state = OrderedDict(
        dense=Rebuild(storage, 0, (3, 4), (4, 1)),
        transposed=Rebuild(storage, 0, (4, 3), (1, 4)),
        tail=Rebuild(storage, 10, (2,), (1,)),
        count=Rebuild(count, 0, (), ()),
    )
    path = checkpoint(tmp_path / "w.pth", state, {"1": values, "2": np.array([7], np.int64)})
    tensors = read_tensors(path)
    np.testing.assert_array_equal(tensors["dense"], values.reshape(3, 4))
    np.testing.assert_array_equal(tensors["transposed"], values.reshape(3, 4).T)
    np.testing.assert_array_equal(tensors["tail"], [10, 11])
    assert tensors["count"] == 7
    assert list(tensors) == list(state)


class MakesFolder:
    """The classic attack: a pickle that calls a function, here a harmless one that leaves a trace."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("place", ["state", "name", "first"])
def test_a_pickle_that_calls_something_is_refused_before_it_runs(tmp_path, place):
    proof = tmp_path / "was-run"
    attack = MakesFolder(proof)
    pickle.loads(pickle.dumps(attack))
    assert proof.exists(), "the attack must work on an ordinary unpickler"
    proof.rmdir()
    state = {"state": {"weight": attack}, "name": {("weight", attack): 1}, "first": {}}[place]
    path = checkpoint(tmp_path / "w.pth", state, {}, magic=attack if place == "first" else MAGIC)
    with pytest.raises(ServeError, match=f"asks for '{os.mkdir.__module__}.mkdir'"):
        read_tensors(path)
    assert not proof.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [("builtins", "eval"), ("builtins", "getattr"), ("os", "system"), ("torch", "load"), ("numpy", "load")],
)
def test_every_other_name_is_refused(tmp_path, module, name):
    path = checkpoint(tmp_path / "w.pth", {"weight": Global(module, name)}, {})
    with pytest.raises(ServeError, match=f"asks for '{module}.{name}'"):
        read_tensors(path)


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [
        (0, (5,), (1,)),
        (3, (2,), (1,)),
        (-1, (2,), (1,)),
        (0, (2,), (1000,)),
        (0, (2,), (-1,)),
        (0, (1 << 40,), (0,)),
        (0, (-1,), (1,)),
    ],
)
def test_a_tensor_that_leads_out_of_its_storage_is_refused(tmp_path, offset, shape, strides):
    state = {"weight": Rebuild(Storage("1", 4), offset, shape, strides)}
    path = checkpoint(tmp_path / "w.pth", state, {"1": np.zeros(4, np.float32)})
    with pytest.raises(ServeError):
        read_tensors(path)


def test_a_storage_that_claims_more_than_the_file_is_refused(tmp_path):
    path = checkpoint(
        tmp_path / "w.pth", {"w": Rebuild(Storage("1", 4), 0, (4,), (1,))}, {"1": np.zeros(4, np.float32)}
    )
    data = path.read_bytes()
    path.write_bytes(data[:-24] + struct.pack("<q", 1 << 60) + data[-16:])
    with pytest.raises(ServeError, match="more than the file holds"):
        read_tensors(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x02.", pickle.dumps(1), b"cos\nsystem\n."])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "w.pth"
    path.write_bytes(content)
    with pytest.raises(ServeError, match=r"w\.pth"):
        read_tensors(path)


def test_another_magic_number_is_refused(tmp_path):
    with pytest.raises(ServeError, match=r"before 1\.6"):
        read_tensors(checkpoint(tmp_path / "w.pth", {}, {}, magic=1))
