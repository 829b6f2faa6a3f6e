"""Shared memory that clients register: tensors that are read from it and written to it instead of travelling.

Triton's *system shared memory* extension (``shared_memory_manager.cc``). The client makes a POSIX shared
memory object, registers a region of it under a name, and names the region in its requests.

A region is never touched as mapped memory where its owner can shrink it: a server that reads a
mapping beyond the object's end dies of SIGBUS, and no check beforehand helps against an owner that
shrinks it a moment later. So on Linux bytes are copied through the descriptor (``pread``, ``pwrite``),
where the same is an ordinary short read. macOS knows no such reads and writes of shared memory, but
neither can anybody change its size there once it has one: there it is mapped.
"""

from __future__ import annotations

import mmap
import os
import stat
import sys
import weakref
from typing import NamedTuple

import numpy as np

from bident.errors import Code, ServeError, invalid_arg
from bident.wire.shown import shown

_RESERVED_PREFIX = "triton_python_backend_shm_region_"
_MOST_REGIONS = 1024
"""Each holds a descriptor, of which a process has so many."""
_LONGEST_NAME = 4096
_DISABLED = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."


class SystemRegion(NamedTuple):
    """A registered region: ``byte_size`` bytes from byte ``offset`` of the shared memory object ``key``."""

    name: str
    key: str
    offset: int
    byte_size: int


class Window:
    """Bytes of a region that one tensor is read from or written to. Keeps the region's memory open."""

    __slots__ = ("_memory", "_offset", "region", "size")

    def __init__(self, memory: _Memory, region: str, offset: int, size: int) -> None:
        """``size`` bytes from byte ``offset`` of ``memory``, which belongs to ``region``."""
        self._memory = memory
        self._offset = offset
        self.region = region
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self) -> memoryview:
        """A copy of the bytes: what a client does to its memory later changes no request.

        Raises INVALID_ARG where the owner has shrunk the memory since it was registered.
        """
        data = np.empty(self.size, np.uint8).data
        try:
            size = self._memory.read_into(data, self._offset)
        except OSError as error:
            raise self._failed("read from", error) from None
        if size < self.size:
            raise invalid_arg(
                f"Invalid offset + byte size for shared memory region: {shown(self.region)}: its shared memory object "
                "has become smaller than what was registered"
            )
        return data

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Put ``data``, which is no longer than the window, at its beginning. Raises INTERNAL if that fails."""
        try:
            self._memory.write(memoryview(data), self._offset)
        except OSError as error:
            raise self._failed("write to", error) from None

    def _failed(self, what: str, error: OSError) -> ServeError:
        return ServeError(
            Code.INTERNAL, f"failed to {what} shared memory region {shown(self.region)}: {error.strerror}"
        )


class SharedMemory:
    """The regions that clients have registered. All methods raise ServeError with Triton's words."""

    def __init__(self, allowed: bool) -> None:
        """``allowed``: whether clients may register regions (``--allow-client-shm``)."""
        self._allowed = allowed
        self._regions: dict[str, tuple[SystemRegion, _Memory]] = {}

    def register_system(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Open ``byte_size`` bytes from byte ``offset`` of the shared memory object ``key`` as region ``name``."""
        self.check_allowed()
        _check_name(name)
        for word in (name, key.lstrip("/")):
            if word.startswith(_RESERVED_PREFIX):
                raise invalid_arg(
                    f"cannot register shared memory region {shown(name)}: names and keys that begin with "
                    f"'{_RESERVED_PREFIX}' are reserved"
                )
        if name in self._regions:
            raise ServeError(Code.ALREADY_EXISTS, f"shared memory region {shown(name)} already in manager")
        if len(self._regions) >= _MOST_REGIONS:
            raise ServeError(
                Code.UNAVAILABLE, f"{_MOST_REGIONS} shared memory regions are registered: unregister some first"
            )
        memory = _open(name, key, offset, byte_size)
        self._regions[name] = (SystemRegion(name, key, offset, byte_size), memory)

    def unregister_system(self, name: str) -> None:
        """Forget region ``name``, or all of them for "". Requests that have it keep its memory open."""
        self.check_allowed()
        if name:
            self._regions.pop(name, None)
        else:
            self._regions.clear()

    def system_regions(self, name: str) -> list[SystemRegion]:
        """Region ``name``, or all of them, by name, for ""."""
        if not name:
            return sorted(region for region, _ in self._regions.values())
        if name not in self._regions:
            raise ServeError(Code.NOT_FOUND, f"Unable to find system shared memory region: {shown(name)}")
        return [self._regions[name][0]]

    def register_cuda(self, name: str, raw_handle: bytes, device_id: int, byte_size: int) -> None:
        """Refuse: there are no GPUs."""
        self.check_allowed()
        raise invalid_arg(f"failed to register CUDA shared memory region: {shown(name)}, GPUs not supported")

    def unregister_cuda(self, name: str) -> None:
        """Do nothing: there is none, and to unregister what is not there is a success."""
        self.check_allowed()

    def cuda_regions(self, name: str) -> list[SystemRegion]:
        """None, for all; NOT_FOUND for any name."""
        if name:
            raise ServeError(Code.NOT_FOUND, f"Unable to find cuda shared memory region: {shown(name)}")
        return []

    def view(self, region: str, offset: int, byte_size: int | None) -> Window:
        """``byte_size`` bytes from byte ``offset`` of ``region``; no size (None) is refused as 0 is."""
        found = self._regions.get(region)
        if found is None:
            raise ServeError(Code.NOT_FOUND, f"Unable to find shared memory region: {shown(region)}")
        registered, memory = found
        if not 0 <= offset < registered.byte_size:
            raise invalid_arg(
                f"Invalid offset for shared memory region: {shown(region)}: {offset} is not within its "
                f"{registered.byte_size} bytes"
            )
        size = byte_size or 0
        if not 0 < size <= registered.byte_size - offset:
            raise invalid_arg(
                f"Invalid offset + byte size for shared memory region: {shown(region)}: {size} bytes from byte "
                f"{offset} are not within its {registered.byte_size} bytes (shared_memory_byte_size is at least 1)"
            )
        return Window(memory, region, registered.offset + offset, size)

    def check_allowed(self) -> None:
        """Raise UNSUPPORTED where clients may not register regions."""
        if not self._allowed:
            raise ServeError(Code.UNSUPPORTED, _DISABLED)


def _check_name(name: str) -> None:
    if not name:
        raise invalid_arg("'region name' is necessary to register a shared memory region")
    if len(name) > _LONGEST_NAME:
        raise invalid_arg(f"the name of a shared memory region can have {_LONGEST_NAME} characters, not more")


class _Memory:
    """An open shared memory object of ``size`` bytes. It is closed when nobody has it any more."""

    def __init__(self, descriptor: int, size: int) -> None:
        """Takes ``descriptor`` over."""
        self._descriptor = descriptor
        self._mapped = None if sys.platform == "linux" else mmap.mmap(descriptor, size)
        weakref.finalize(self, os.close, descriptor)

    def read_into(self, target: memoryview, offset: int) -> int:
        """Fill ``target`` with what lies at ``offset``; returns how many bytes there were. Raises OSError."""
        if self._mapped is not None:
            target[:] = memoryview(self._mapped)[offset : offset + len(target)]
            return len(target)
        done = 0
        while done < len(target) and (count := os.preadv(self._descriptor, [target[done:]], offset + done)):
            done += count
        return done

    def write(self, data: memoryview, offset: int) -> None:
        """Put ``data`` at ``offset``. Raises OSError."""
        if self._mapped is not None:
            self._mapped[offset : offset + len(data)] = data
            return
        done = 0
        while done < len(data):
            done += os.pwrite(self._descriptor, data[done:], offset + done)


def _open(name: str, key: str, offset: int, byte_size: int) -> _Memory:
    """The shared memory object ``key``, which must hold the region."""
    where = f"Unable to open shared memory region: {shown(key)}"
    if "\0" in key:  # the system would take what stands before it
        raise _cannot_register(name, f"{where}: there is a NUL in it")
    try:
        descriptor = _shm_open(key)
    except OSError as error:
        raise _cannot_register(name, f"{where}: {error.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) and sys.platform == "linux":
            raise _cannot_register(name, f"{where}: it is no shared memory object")
        if byte_size < 1 or offset < 0 or offset + byte_size > status.st_size:
            raise _cannot_register(
                name,
                f"invalid args: {byte_size} bytes from byte {offset} are not within the {status.st_size} bytes of "
                f"{shown(key)}",
            )
        return _Memory(descriptor, status.st_size)
    except BaseException:
        os.close(descriptor)
        raise


def _shm_open(key: str) -> int:
    try:
        import _posixshmem  # type: ignore[import-not-found]
    except ImportError:
        raise ServeError(
            Code.UNSUPPORTED, "this platform has no POSIX shared memory: send tensors in the request"
        ) from None
    descriptor: int = _posixshmem.shm_open(key, os.O_RDWR, mode=0)
    return descriptor


def _cannot_register(name: str, reason: str) -> ServeError:
    return invalid_arg(f"failed to register shared memory region {shown(name)}: {reason}")
