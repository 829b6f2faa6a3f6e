"""gzip and deflate in both directions: what is valid, what is refused, who does the work."""

from __future__ import annotations

import asyncio
import gzip
import threading
import tracemalloc
import zlib

import pytest

from bident.doors.http.compression import choose, compress, decompress, is_large, pack, unpack
from bident.errors import Code, ServeError

TEXT = b'{"inputs":[]}' * 100
PACKED = {b"gzip": gzip.compress(TEXT), b"x-gzip": gzip.compress(TEXT), b"deflate": zlib.compress(TEXT)}


@pytest.mark.parametrize("encoding", PACKED)
def test_what_is_packed_is_unpacked(encoding: bytes) -> None:
    assert decompress(encoding, PACKED[encoding], len(TEXT)) == TEXT


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
def test_what_we_pack_anybody_can_unpack(encoding: bytes) -> None:
    packed = compress(encoding, (TEXT, memoryview(TEXT), bytearray(b"end")))
    unpacked = gzip.decompress(packed) if encoding == b"gzip" else zlib.decompress(packed)
    assert unpacked == TEXT + TEXT + b"end"


@pytest.mark.parametrize("encoding", PACKED)
def test_one_byte_over_the_limit_is_refused(encoding: bytes) -> None:
    with pytest.raises(ServeError, match=r"1299 bytes once decompressed.*--http-max-input-size") as caught:
        decompress(encoding, PACKED[encoding], len(TEXT) - 1)
    assert caught.value.code is Code.INVALID_ARG


@pytest.mark.parametrize("encoding", PACKED)
def test_what_is_cut_short_is_refused_wherever_it_is_cut(encoding: bytes) -> None:
    packed = PACKED[encoding]
    for size in range(len(packed)):
        with pytest.raises(ServeError, match="is cut short") as caught:
            decompress(encoding, packed[:size], len(TEXT))
        assert caught.value.code is Code.INVALID_ARG


@pytest.mark.parametrize("encoding", PACKED)
def test_what_follows_the_end_is_refused(encoding: bytes) -> None:
    for rest in (b"\0", b"garbage", PACKED[encoding]):
        with pytest.raises(ServeError, match="has bytes after its end"):
            decompress(encoding, PACKED[encoding] + rest, 10 * len(TEXT))


@pytest.mark.parametrize("encoding", PACKED)
def test_no_damage_goes_unnoticed(encoding: bytes) -> None:
    """Every byte but those of gzip's header that say when and where it was packed."""
    packed = PACKED[encoding]
    for at in range(len(packed)):
        damaged = packed[:at] + bytes([packed[at] ^ 0x55]) + packed[at + 1 :]
        if encoding != b"deflate" and 4 <= at < 10:
            assert decompress(encoding, damaged, len(TEXT)) == TEXT
        else:
            with pytest.raises(ServeError) as caught:
                decompress(encoding, damaged, len(TEXT))
            assert caught.value.code is Code.INVALID_ARG


def test_the_other_format_is_refused() -> None:
    for encoding, other in ((b"gzip", b"deflate"), (b"deflate", b"gzip")):
        with pytest.raises(ServeError, match="cannot be decompressed"):
            decompress(encoding, PACKED[other], len(TEXT))


@pytest.mark.parametrize("encoding", [b"br", b"zstd", b"gzip, deflate", b"compress", b"GZIP2"])
def test_other_encodings(encoding: bytes) -> None:
    with pytest.raises(ServeError, match="Unsupported compression type: use one of gzip, deflate") as caught:
        decompress(encoding, TEXT, 10**6)
    assert caught.value.code is Code.UNSUPPORTED


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
def test_a_bomb_costs_no_more_memory_than_the_limit(encoding: bytes) -> None:
    bomb = compress(encoding, [bytes(1 << 20)] * 100)
    limit = 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(ServeError, match="once decompressed"):
            decompress(encoding, bomb, limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * limit


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that did the work."""
    names: list[str] = []
    for work in (compress, decompress):

        def noting(*arguments: object, work: object = work) -> object:
            names.append(threading.current_thread().name)
            return work(*arguments)  # type: ignore[operator]

        monkeypatch.setattr(f"bident.doors.http.compression.{work.__name__}", noting)
    return names


def test_only_what_is_small_is_unpacked_on_the_loop(workers: list[str]) -> None:
    large = gzip.compress(bytes(2_200_000))
    assert len(large) > 2048
    assert asyncio.run(unpack(b"gzip", PACKED[b"gzip"], 10**7)) == TEXT
    assert asyncio.run(unpack(b"gzip", large, 10**7)) == bytes(2_200_000)
    assert workers[0] == "MainThread"
    assert workers[1] != "MainThread"


def test_what_is_large_is_packed_by_a_thread(workers: list[str]) -> None:
    pieces = (bytes(40_000), bytearray(40_000))
    assert not is_large(pieces[:1])
    assert is_large(pieces)
    assert gzip.decompress(asyncio.run(pack(b"gzip", pieces))) == bytes(80_000)
    assert workers != ["MainThread"]


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        ("", ""),
        ("gzip", "gzip"),
        ("GZip", "gzip"),
        ("deflate", "deflate"),
        ("gzip, deflate", "gzip"),
        ("deflate, gzip", "deflate"),
        ("deflate, gzip;q=0.5", "deflate"),
        ("gzip;q=0.5,deflate;q=0.7", "deflate"),
        ("gzip ; q=0.2 , deflate ; Q=0.1", "gzip"),
        ("gzip, deflate, br, zstd", "gzip"),
        ("br", ""),
        ("*", "gzip"),
        ("gzip;q=0, *", "deflate"),
        ("*, gzip;q=0", "deflate"),
        ("*;q=0", ""),
        ("*;q=0, deflate", "deflate"),
        ("gzip;q=0", ""),
        ("gzip;q=0.0", ""),
        ("gzip;q=0.000, deflate;q=0.001", "deflate"),
        ("identity", ""),
        ("identity, gzip", "gzip"),
        ("identity, gzip;q=0.5", ""),
        ("identity;q=0.4, gzip;q=0.5", "gzip"),
        ("identity;q=0", ""),
        ("gzip;q=nan", ""),
        ("gzip;q=inf", ""),
        ("gzip;q=1e3", ""),
        ("gzip;q=-1", ""),
        ("gzip;q=", ""),
        ("gzip;q", ""),
        ("gzip;level=9", "gzip"),
        ("gzip;level=9;q=0", ""),
        (",,;;,=", ""),
        ("gzipx", ""),
    ],
)
def test_what_a_client_accepts(accepted: str, chosen: str) -> None:
    assert choose(accepted.encode()) == chosen.encode()
