"""The library of text models: what is kept, found, copied and removed, and what belongs to others."""

from __future__ import annotations

import asyncio
import errno
import os
import time

import orjson
import pytest

from bident.errors import Code, ServeError
from bident.text.modelfile import parse_modelfile
from bident.text.names import ModelName
from bident.text.store.blobs import BlobWriter
from bident.text.store.library import Library, ollama_libraries
from bident.text.store.making import Creation
from bident.wire.text import Message
from tests.unit.text.gguf_files import LLAMA, gguf_bytes, write_gguf
from tests.unit.text.store.stores import make, sha256, statuses, upload, visible, write_foreign


def creation(name: str, **more):
    return Creation(name=ModelName.parse(name), **more)


def test_a_model_from_a_file(library, run):
    async def story():
        digest = await upload(library, gguf_bytes())
        said = await statuses(
            library.create(
                creation(
                    "me/pirate:v1",
                    files={"a.gguf": digest},
                    system="You are a pirate.",
                    template="{{ .Prompt }}",
                    parameters={"stop": "</s>", "temperature": 1, "num_ctx": "64"},
                    messages=[Message("user", "hi")],
                    licenses=["MIT", "MIT"],
                )
            )
        )
        assert [status["status"] for status in said][:2] == ["parsing GGUF", f"using existing layer {digest}"]
        assert [status["status"] for status in said][-2:] == ["writing manifest", "success"]
        return await library.find("ME/Pirate:v1")

    model = run(story())
    assert model.name.short == "me/pirate:v1"
    assert (model.system, model.template, model.license) == ("You are a pirate.", "{{ .Prompt }}", ("MIT",))
    assert model.parameters == {"stop": ["</s>"], "temperature": 1.0, "num_ctx": 64}
    assert model.messages == (Message("user", "hi"),)
    assert (model.details.family, model.details.parameter_size, model.details.quantization_level) == (
        "llama",
        "256",
        "Q4_1",
    )
    assert model.weights.read_bytes() == gguf_bytes()
    path = library.root / "manifests/registry.ollama.ai/me/pirate/v1"
    assert f"sha256:{model.digest}" == sha256(path.read_bytes())
    assert model.size == sum(file.stat().st_size for file in (library.root / "blobs").iterdir())


def test_a_model_from_a_model_shares_its_blobs_and_outlives_it(library, run):
    async def story():
        await make(library, "base", system="Old.", parameters={"top_k": 3, "seed": 1}, licenses=["MIT"])
        made = creation("child", base="BASE", system="New.", parameters={"seed": 2}, licenses=["BSD"])
        await statuses(library.create(made))
        await library.delete("base")
        with pytest.raises(ServeError, match="model 'base' not found"):
            await library.find("base")
        return await library.find("child")

    child = run(story())
    assert (child.system, child.parameters, child.license) == ("New.", {"top_k": 3, "seed": 2}, ("MIT", "BSD"))
    assert child.details.parent_model == "base:latest"
    assert child.weights.is_file()


def test_deleting_and_replacing_leave_nothing_over(library, run):
    async def story():
        await make(library, "a", seed=1, system="One.")
        await make(library, "b", seed=2)
        await make(library, "a", seed=3, system="Two.")
        assert len([name for name in visible(library.root) if name.startswith("blobs/")]) == 3 + 2
        removed = await library.delete("A")
        assert removed.name.short == "a:latest"
        await library.delete("b")

    run(story())
    assert visible(library.root) == set()
    assert not list((library.root / "manifests").iterdir())


def test_a_copy_is_the_same_model(library, run):
    async def story():
        await make(library, "a")
        await library.copy("a", "me/b:v2")
        first, second = await library.find("a"), await library.find("me/b:v2")
        assert (first.digest, first.weights) == (second.digest, second.weights)
        await library.delete("a")
        assert (await library.find("me/b:v2")).weights.is_file()
        with pytest.raises(ServeError, match="model 'a' not found"):
            await library.copy("a", "c")

    run(story())


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, "neither 'from' or 'files' was specified"),
        ({"base": "absent"}, "model 'absent' not found"),
        ({"base": "a", "files": {"a.gguf": "@whole"}}, "not both"),
        ({"files": {"a.gguf": "@whole", "b.gguf": "@other"}}, "several files of weights"),
        ({"base": "../up"}, "invalid model name"),
        ({"files": {"../a.gguf": sha256(b"")}}, "invalid file name"),
        ({"files": {"/a.gguf": sha256(b"")}}, "invalid file name"),
        ({"files": {"a\\..\\b": sha256(b"")}}, "invalid file name"),
        ({"files": {"a": "sha256:../../etc/passwd"}}, "invalid digest format"),
        ({"files": {"a": sha256(b"absent")}}, "has not been uploaded"),
        ({"files": {"a": 7}}, "must be a text"),
        ({"files": {"model.safetensors": "@text"}}, "not a GGUF file"),
        ({"files": {"a.gguf": "@half"}}, "it is cut off"),
        ({"files": {"a.gguf": "@adapter"}}, "no weights"),
        ({"files": {"a.gguf": "@whole"}, "adapters": {"b.gguf": "@whole"}}, "is a model, not an adapter"),
        ({"files": {"a.gguf": "@whole"}, "parameters": {"temperatur": 1}}, "unknown parameter 'temperatur'"),
        ({"files": {"a.gguf": "@whole"}, "parameters": {"num_ctx": "many"}}, "must be an integer"),
        ({"files": {"a.gguf": "@whole"}, "template": "{{ if }"}, "template"),
        ({"files": {"a.gguf": "@whole"}, "quantize": "q4_0"}, "llama-quantize"),
        ({"files": {"a.gguf": "@whole"}, "system": "x" * (5 << 20)}, "bytes"),
    ],
)
def test_what_cannot_be_made(library, run, more, reason):
    contents = {
        "@text": b"not GGUF at all",
        "@half": gguf_bytes()[:-64],
        "@whole": gguf_bytes(),
        "@other": gguf_bytes(seed=5),
        "@adapter": gguf_bytes({**LLAMA, "general.type": "adapter"}),
    }

    async def story():
        filled = dict(more)
        for kind in ("files", "adapters"):
            named = dict(more.get(kind, {}))
            for name, digest in named.items():
                if digest in contents:
                    named[name] = await upload(library, contents[digest])
            filled[kind] = named
        with pytest.raises(ServeError, match=reason) as caught:
            await statuses(library.create(creation("new", **filled)))
        assert caught.value.code in (Code.INVALID_ARG, Code.NOT_FOUND)
        assert await library.models() == []

    run(story())


def test_uploads(library, run):
    async def gone():
        yield b"some"
        raise ConnectionResetError

    async def story():
        content = os.urandom(3_000_000)
        digest = await upload(library, content)
        assert await library.has_blob(digest)
        assert library.blob_path(digest).read_bytes() == content
        assert await library.has_blob(digest.upper().replace("SHA256", "sha256"))
        assert not await library.has_blob(sha256(b"other"))

        async def other():
            yield b"x"

        assert await library.put_blob(digest, other()) is False
        with pytest.raises(ServeError, match=f'digest mismatch, expected "{sha256(b"y")}", got "{sha256(b"x")}"'):
            await library.put_blob(sha256(b"y"), other())
        with pytest.raises(ConnectionResetError):
            await library.put_blob(sha256(b"some"), gone())
        with pytest.raises(ServeError, match="invalid digest format"):
            await library.has_blob("sha256:" + "../" * 20)
        assert visible(library.root) == {f"blobs/{digest.replace(':', '-')}"}

    run(story())


def test_a_full_disk_leaves_nothing(library, run, monkeypatch):
    def full(self, chunk):
        raise OSError(errno.ENOSPC, "No space left on device")

    async def story():
        await make(library, "a")
        before = visible(library.root)
        with monkeypatch.context() as patch:
            patch.setattr("bident.text.store.blobs.os.fsync", lambda number: full(None, None))
            with pytest.raises(ServeError, match="no space left on device"):
                await upload(library, b"b" * 5000)
            with pytest.raises(ServeError, match="no space left on device"):
                await library.copy("a", "b")
            with pytest.raises(ServeError, match="no space left on device"):
                await statuses(library.create(creation("c", base="a", system="New.")))
        assert visible(library.root) == before
        assert [model.name.short for model in await library.models()] == ["a:latest"]

    run(story())


@pytest.mark.parametrize("damage", ["manifest", "config", "weights", "gone", "zero context"])
def test_a_broken_model_is_listed_refused_and_can_be_removed(library, run, damage):
    async def story():
        await make(library, "a")
        await make(library, "b", seed=9)
        model = await library.find("a")
        manifest = library.root / "manifests/registry.ollama.ai/library/a/latest"
        if damage == "manifest":
            manifest.write_bytes(b'{"layers": 7}')
        elif damage == "config":
            digest = orjson.loads(manifest.read_bytes())["config"]["digest"]
            library.blob_path(digest).write_bytes(b"[]")
        elif damage == "weights":
            model.weights.write_bytes(gguf_bytes()[:100])
        elif damage == "gone":
            model.weights.unlink()
        else:
            model.weights.write_bytes(gguf_bytes({**LLAMA, "llama.context_length": 0}))
        again = Library(library.root)
        listed = {each.name.short: each for each in await again.models()}
        assert listed["a:latest"].fault
        assert not listed["b:latest"].fault
        with pytest.raises(ServeError, match="model 'a:latest' cannot be used: ") as caught:
            await again.find("a")
        assert caught.value.code is Code.INTERNAL
        await again.delete("a")
        assert [each.name.short for each in await again.models()] == ["b:latest"]

    run(story())


def test_bytes_that_changed_on_the_disk_are_noticed(library, run):
    async def story():
        await make(library, "a")
        model = await library.find("a")
        await library.verify(model)
        content = bytearray(model.weights.read_bytes())
        content[-1] ^= 1
        model.weights.write_bytes(content)
        os.utime(model.weights, (time.time() + 5, time.time() + 5))
        with pytest.raises(ServeError, match="is damaged"):
            await library.verify(await library.find("a"))
        model.weights.unlink()
        with pytest.raises(ServeError, match="is missing"):
            await library.verify(model)

    run(story())


def test_what_was_verified_is_not_read_again(library, run, monkeypatch):
    async def story():
        await make(library, "a")
        await library.verify(await library.find("a"))
        again = Library(library.root)
        monkeypatch.setattr("bident.text.store.verified.file_digest", lambda path: pytest.fail("it was read again"))
        await again.verify(await again.find("a"))

    run(story())


def test_show(library, run):
    async def story():
        tokens = [f"t{number}" for number in range(2000)]
        metadata = {**LLAMA, "general.name": "A", "tokenizer.chat_template": "{{ x }}", "tokenizer.ggml.tokens": tokens}
        digest = await upload(library, gguf_bytes(metadata))
        made = creation("a", files={"a": digest}, system='Say "hi"', parameters={"stop": ["</s>"], "top_p": 0.5})
        await statuses(library.create(made))
        return await library.show("a"), await library.show("a", verbose=True)

    brief, verbose = run(story())
    assert brief.template == "{{ x }}"
    assert brief.parameters.splitlines() == ["stop" + " " * 27 + '"</s>"', "top_p" + " " * 26 + "0.5"]
    assert brief.model_info["general.parameter_count"] == 256
    assert not {"general.name", "tokenizer.chat_template"} & brief.model_info.keys()
    assert (brief.model_info["tokenizer.ggml.tokens"], brief.tensors) == ([], [])
    assert len(verbose.model_info["tokenizer.ggml.tokens"]) == 2000
    assert verbose.tensors == [{"name": "token_embd.weight", "type": "F32", "shape": [64, 4]}]
    again = parse_modelfile(brief.modelfile)
    assert (again.base, again.system, again.parameters) == (
        str(brief.model.weights),
        'Say "hi"',
        {"stop": ["</s>"], "top_p": 0.5},
    )


def test_an_ollama_library_is_served_in_place_and_never_written_to(tmp_path, run):
    foreign = tmp_path / "ollama"
    write_foreign(foreign, "llama", "hf.co/me/other:q4", layers={"params": b'{"stop":["x"],"gone_option":1}'})
    write_foreign(foreign, "cloud", config={"remote_host": "https://far.example"})
    write_foreign(foreign, "mlx", config={"model_format": "safetensors"})
    orphan = foreign / "blobs" / f"sha256-{'0' * 64}"
    orphan.write_bytes(b"orphan")
    os.utime(orphan, (0, 0))
    library = Library(tmp_path / "own", [foreign, tmp_path / "absent"])

    async def story():
        before = {path: path.stat().st_mtime_ns for path in foreign.rglob("*")}
        await library.open()
        assert {each.name.short for each in await library.models()} == {"llama:latest", "hf.co/me/other:q4"}
        model = await library.find("Llama")
        assert (model.template, model.parameters, model.license) == ("{{ .Prompt }}", {"stop": ["x"]}, ("MIT",))
        assert (model.details.parameter_size, model.read_only) == ("1B", True)
        await library.verify(model)
        with pytest.raises(ServeError, match="not Bident's to remove"):
            await library.delete("llama")
        await statuses(library.create(creation("mine", base="llama", system="Hi.")))
        await library.copy("llama", "copied")
        await library.prune()
        assert before == {path: path.stat().st_mtime_ns for path in foreign.rglob("*")}
        for path in foreign.rglob("*"):
            if path.is_file():
                path.unlink()
        assert (await library.find("mine")).system == "Hi."
        assert (await library.find("copied")).template == "{{ .Prompt }}"
        await library.delete("mine")
        assert (await library.find("copied")).weights.is_file()

    run(story())


def test_our_own_model_hides_one_of_the_same_name(tmp_path, run):
    write_foreign(tmp_path / "ollama", "a")
    library = Library(tmp_path / "own", [tmp_path / "ollama"])

    async def story():
        await make(library, "A", system="Mine.")
        assert [model.system for model in await library.models()] == ["Mine."]
        await library.delete("a")
        assert (await library.find("a")).read_only

    run(story())


def test_bare_files_in_place(tmp_path, run):
    folder = tmp_path / "files"
    write_gguf(folder / "Some Model.Q4_1.gguf")
    write_gguf(folder / "mmproj-Some Model.Q4_1.gguf", {"general.architecture": "clip", "clip.vision.block_count": 1})
    write_gguf(folder / "adapter.gguf", {**LLAMA, "general.type": "adapter"})
    write_gguf(folder / "part-00002-of-00002.gguf")
    (folder / "broken.gguf").write_bytes(b"GGUF")
    alone = write_gguf(tmp_path / "elsewhere" / "alone.gguf")
    library = Library(tmp_path / "own", files=[folder, alone, tmp_path / "absent"])

    async def story():
        found = {model.name.short: model for model in await library.models()}
        assert set(found) == {"Some-Model.Q4_1:latest", "broken:latest", "alone:latest"}
        assert found["broken:latest"].fault
        model = await library.find("some-model.q4_1")
        assert model.capabilities == {"completion", "vision"}
        assert model.projector == folder / "mmproj-Some Model.Q4_1.gguf"
        await library.verify(model)
        digest = (await library.find("alone")).digest
        os.utime(alone, (1, 1))
        assert (await library.find("alone")).digest != digest
        with pytest.raises(ServeError, match="not Bident's to remove"):
            await library.delete("alone")
        await library.copy("alone", "kept")
        await statuses(library.create(creation("child", base="some-model.q4_1", system="Hi.")))
        alone.unlink()
        assert (await library.find("kept")).weights.is_file()
        assert (await library.find("child")).projector.is_file()
        with pytest.raises(ServeError, match="model 'alone' not found"):
            await library.find("alone")

    run(story())


def test_opening_tidies_up(library, run):
    async def story():
        await make(library, "a")
        digest = await upload(library, b"fresh, perhaps of a model that is being made")
        old = await upload(library, b"old")
        incoming = library.root / "incoming"
        left = [incoming / name for name in ("killed.blob", "part.partial", "fresh.partial")]
        for path in left:
            path.write_bytes(b"x")
        for path in (library.blob_path(old), left[0]):
            os.utime(path, (time.time() - 100_000,) * 2)
        os.utime(left[1], (time.time() - 10 * 86400,) * 2)
        with BlobWriter(library._own.blobs) as writer:
            writer.write(b"being written for long")
            os.utime(writer._path, (0, 0))
            await library.open()
            assert writer._path.exists()
        assert not await library.has_blob(old)
        assert await library.has_blob(digest)
        assert [path.exists() for path in left] == [False, False, True]
        assert (await library.find("a")).weights.is_file()

    run(story())


def test_making_and_removing_at_the_same_time(library, run):
    async def story():
        for _ in range(5):
            await make(library, "base", seed=4)
            made = [statuses(library.create(creation(f"m{each}", base="base", system=f"{each}"))) for each in range(4)]
            done = await asyncio.gather(*made, library.delete("base"), return_exceptions=True)
            for each, result in enumerate(done[:4]):
                if isinstance(result, list):
                    await library.verify(await library.find(f"m{each}"))
                    await library.delete(f"m{each}")
                else:
                    assert isinstance(result, ServeError)
                    assert "not found" in result.message or "missing" in result.message or "gone" in result.message

    run(story())
    assert not list((library.root / "incoming").iterdir())


@pytest.mark.parametrize("bad", ["../../../../etc/passwd", "a/../../b", "a:../b"])
def test_names_are_confined_to_the_store(library, run, bad):
    async def story():
        for asked in (library.find(bad), library.delete(bad), library.copy("a", bad), library.copy(bad, "a")):
            with pytest.raises(ServeError, match="invalid model name"):
                await asked
        for start, *arguments in ((library.pull, bad), (library.push, bad), (library.pull, "smollm2", bad)):
            with pytest.raises(ServeError, match="invalid model name"):
                start(*arguments)

    run(story())


def test_where_an_ollama_keeps_its_models(tmp_path):
    assert ollama_libraries({"OLLAMA_MODELS": f' "{tmp_path}" '}) == [tmp_path]
    assert [path.name for path in ollama_libraries({})] == ["models", "models"]
