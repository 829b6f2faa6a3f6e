"""Registries: models go there and come back as they were, with and without a token."""

from __future__ import annotations

import base64

import orjson
import pytest

from bident.errors import Code, ServeError
from bident.text.names import ModelName
from bident.text.store.library import Library
from bident.text.store.making import Creation
from tests.unit.text.store.stores import make, sha256, statuses, visible


@pytest.fixture
def name(web):
    return f"{web.url.removeprefix('http://')}/me/pirate:v1"


@pytest.mark.parametrize("demands_token", [False, True])
def test_there_and_back(library, tmp_path, run, web, name, demands_token):
    web.demands_token = demands_token

    async def story():
        await make(library, "base", system="Arr.", parameters={"top_k": 3}, licenses=["MIT"])
        await library.copy("base", name)
        said = await statuses(library.push(name))
        assert [said[0]["status"], said[-2]["status"], said[-1]["status"]] == [
            "retrieving manifest",
            "pushing manifest",
            "success",
        ]
        assert {"digest", "total", "completed", "status"} in [set(status) for status in said]
        uploads = [path for method, path, _ in web.requests if method == "PUT" and "/blobs/" in path]
        await statuses(library.push(name))
        assert uploads == [path for method, path, _ in web.requests if method == "PUT" and "/blobs/" in path]

        other = Library(tmp_path / "other")
        pulled = await statuses(other.pull(name))
        shown = [status["status"] for status in pulled]
        assert [shown[0], *shown[-3:]] == ["pulling manifest", "verifying sha256 digest", "writing manifest", "success"]
        there, back = await library.find(name), await other.find(name)
        assert (back.digest, back.system, back.license) == (there.digest, "Arr.", ("MIT",))
        assert back.weights.read_bytes() == there.weights.read_bytes()
        await statuses(other.pull(f"oci:{name}", "mine"))
        assert (await other.find("mine")).digest == there.digest

    run(story())


@pytest.mark.parametrize("demands_token", [False, True])
def test_a_login(library, tmp_path, run, web, name, monkeypatch, demands_token):
    credentials = base64.b64encode(b"me:secret").decode()
    web.demands_token, web.login = demands_token, f"Basic {credentials}"
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    async def story():
        await make(library, name)
        with pytest.raises(ServeError, match="demands a login"):
            await statuses(library.push(name))
        kept = {"auths": {name.partition("/")[0]: {"auth": credentials}}}
        (tmp_path / "config.json").write_bytes(orjson.dumps(kept))
        await statuses(library.push(name))
        await statuses(Library(tmp_path / "other").pull(name))
        kept["auths"][name.partition("/")[0]]["auth"] = base64.b64encode(b"me:wrong").decode()
        (tmp_path / "config.json").write_bytes(orjson.dumps(kept))
        with pytest.raises(ServeError, match="demands a login"):
            await statuses(library.push(name))
        (tmp_path / "config.json").write_text("broken")
        with pytest.raises(ServeError, match="demands a login"):
            await statuses(library.push(name))

    run(story())


def test_a_pull_goes_on_where_it_was_broken_off(library, tmp_path, run, web, name):
    async def story():
        await make(library, name)
        await statuses(library.push(name))
        digest = f"sha256-{(await library.find(name)).weights.name[7:]}".replace("-", ":")
        path = f"/v2/me/pirate/blobs/{digest}"
        web.cut_after[path] = 500
        other = Library(tmp_path / "other")
        await statuses(other.pull(name))
        assert web.asked(path) == ["", "bytes=500-"]
        await other.verify(await other.find(name))

    run(story())


def test_an_update_removes_what_is_no_longer_needed(library, tmp_path, run, web, name):
    async def story():
        other = Library(tmp_path / "other")
        for seed in (1, 2):
            await make(library, name, seed=seed)
            await statuses(library.push(name))
            await statuses(other.pull(name))
        assert len(visible(other.root)) == 3

    run(story())


def test_what_a_registry_may_answer(library, tmp_path, run, web, name):
    run(make(library, name))
    run(statuses(library.push(name)))
    manifest = "/v2/me/pirate/manifests/v1"
    good = web.files[manifest]
    weights = next(layer for layer in orjson.loads(good)["layers"])["digest"]
    other = Library(tmp_path / "other")

    def pull(reason, code, **options):
        async def story():
            with pytest.raises(ServeError, match=reason) as caught:
                await statuses(other.pull(name))
            assert caught.value.code is code
            assert await other.models() == []
            assert not [path for path in other.root.rglob("*/manifests/*") if path.is_file()]

        run(story())

    web.files[f"/v2/me/pirate/blobs/{weights}"] = web.files[f"/v2/me/pirate/blobs/{weights}"][:-1] + b"!"
    pull("digest mismatch, expected", Code.INVALID_ARG)
    web.files[f"/v2/me/pirate/blobs/{weights}"] += b"more"
    pull("not the .* that were announced", Code.INVALID_ARG)
    del web.files[f"/v2/me/pirate/blobs/{weights}"]
    pull("file does not exist", Code.NOT_FOUND)
    for broken in (
        b"",
        b"{}",
        b"[]",
        b'{"layers": [7], "config": {}}',
        good.replace(b"sha256:", b"sha256:../"),
        b"[" * 9999,
    ):
        web.files[manifest] = broken
        pull("is not a manifest", Code.INVALID_ARG)
    web.files[manifest] = good.replace(b"vnd.ollama.image.model", b"other")
    pull("no text model", Code.INVALID_ARG)
    web.files[manifest] = b" " * (5 << 20)
    pull("more than", Code.UNAVAILABLE)
    del web.files[manifest]
    pull("pull model manifest: file does not exist", Code.NOT_FOUND)


def test_pushing_what_is_not_there_or_to_nobody(library, run, web, name):
    async def story():
        with pytest.raises(ServeError, match="not found"):
            await statuses(library.push(name))
        await make(library, "127.0.0.1:9/me/m")
        with pytest.raises(ServeError, match="push") as caught:
            await statuses(library.push("127.0.0.1:9/me/m"))
        assert caught.value.code is Code.UNAVAILABLE

    run(story())


def test_from_another_base_than_our_own_digest_of_what_was_sent(library, run, web, name):
    """A model that was made from one of a registry keeps its parent's name in the manifest that is sent."""

    async def story():
        await make(library, "base")
        await statuses(library.create(Creation(name=ModelName.parse(name), base="base", system="Hi.")))
        await statuses(library.push(name))
        sent = web.files["/v2/me/pirate/manifests/v1"]
        assert sha256(sent) == f"sha256:{(await library.find(name)).digest}"
        assert orjson.loads(sent)["layers"][0]["from"] == "base:latest"

    run(story())
