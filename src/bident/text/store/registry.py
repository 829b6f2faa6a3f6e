"""A registry that speaks Docker's protocol (OCI Distribution, v2) with Ollama's media types."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import orjson

from bident.errors import Code, ServeError
from bident.text.names import ModelName
from bident.text.store.credentials import registry_login
from bident.text.store.download import Wanted
from bident.text.store.jobs import Report
from bident.text.store.manifests import LARGEST, MANIFEST_TYPE, Layer, Manifest, parse_manifest
from bident.text.store.source import is_loopback
from bident.text.store.web import explained, refused, small_body

_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_CHUNK = 1 << 20
_OCI_TYPE = "application/vnd.oci.image.manifest.v1+json"


class Registry:
    """The registry of ``name``, spoken to over https unless it is ``insecure`` or on this machine. Blocks."""

    def __init__(self, client: httpx.Client, name: ModelName, *, insecure: bool) -> None:
        self._client = client
        self._name = name
        scheme = "http" if insecure or is_loopback(name.host.partition(":")[0]) else "https"
        self._base = f"{scheme}://{name.host}/v2/{name.namespace}/{name.model}"
        self._authorization = ""
        self._login = registry_login(name.host)

    def manifest(self) -> Manifest:
        """What the registry says the model is. Raises NOT_FOUND, UNAVAILABLE, INVALID_ARG (login needed)."""
        what = "pull model manifest"
        accept = {"Accept": f"{MANIFEST_TYPE}, {_OCI_TYPE}"}
        with explained(what), self._asked("GET", f"{self._base}/manifests/{self._name.tag}", accept) as response:
            if response.status_code == 200:
                return parse_manifest(small_body(response, what, LARGEST), f"{what}: what {self._name.host} answered")
            raise refused(response, what)

    def wanted(self, layer: Layer) -> Wanted:
        """Where to download a layer's blob from, with a token that is good now: some last for minutes only."""
        if self._authorization:
            self.has(layer)
        headers = self._authorized({})
        return Wanted(f"{self._base}/blobs/{layer.digest}", layer.digest[7:19], layer.digest, layer.size, headers)

    def has(self, layer: Layer) -> bool:
        with explained("push"), self._asked("HEAD", f"{self._base}/blobs/{layer.digest}", {}) as response:
            return response.status_code == 200

    def send_blob(self, layer: Layer, path: Path, report: Report) -> None:
        """Upload a blob in one piece. Raises UNAVAILABLE, INVALID_ARG (login needed)."""
        status = f"pushing {layer.digest[7:19]}"
        with explained(status):
            with self._asked("POST", f"{self._base}/blobs/uploads/", {"Content-Length": "0"}) as response:
                if response.status_code not in (201, 202) or "Location" not in response.headers:
                    raise refused(response, status)
                location = httpx.URL(self._base).join(response.headers["Location"])
            headers = {"Content-Length": str(layer.size), "Content-Type": "application/octet-stream"}
            if location.host == httpx.URL(self._base).host:
                headers = self._authorized(headers)
            target = location.copy_merge_params({"digest": layer.digest})
            content = _blob_content(path, layer, report)
            with self._client.stream("PUT", target, headers=headers, content=content) as response:
                if response.status_code not in (201, 202):
                    raise refused(response, status)

    def send_manifest(self, manifest: Manifest) -> None:
        headers = {"Content-Type": MANIFEST_TYPE}
        url = f"{self._base}/manifests/{self._name.tag}"
        with explained("push manifest"), self._asked("PUT", url, headers, manifest.content) as response:
            if response.status_code not in (200, 201, 202):
                raise refused(response, "push manifest")

    @contextmanager
    def _asked(
        self, method: str, url: str, headers: dict[str, str], content: bytes | None = None
    ) -> Iterator[httpx.Response]:
        """The answer, asked for once more with a login or a token if the registry wants one."""
        with self._client.stream(method, url, headers=self._authorized(headers), content=content) as response:
            answer = self._answer_to(response)
            if not answer:
                yield response
                return
        self._authorization = answer if answer.startswith("Basic ") else self._new_token(answer)
        with self._client.stream(method, url, headers=self._authorized(headers), content=content) as response:
            yield response

    def _answer_to(self, response: httpx.Response) -> str:
        """How to meet a challenge: a Basic authorization, a Bearer challenge to get a token for, or "" not at all."""
        challenge = response.headers.get("WWW-Authenticate", "") if response.status_code == 401 else ""
        kind = challenge.partition(" ")[0].lower()
        if kind == "bearer":
            return challenge
        basic = _basic(*self._login) if kind == "basic" and self._login else ""
        return "" if basic == self._authorization else basic

    def _authorized(self, headers: dict[str, str]) -> dict[str, str]:
        return {**headers, "Authorization": self._authorization} if self._authorization else headers

    def _new_token(self, challenge: str) -> str:
        """The authorization by a token from where the ``challenge`` says that there are some."""
        fields = dict(_CHALLENGE.findall(challenge))
        realm = urlsplit(fields.get("realm", ""))
        if realm.scheme not in ("https", "http") or not realm.hostname:
            raise ServeError(Code.UNAVAILABLE, f"{self._name.host} demands a token and does not say from where")
        params = {key: fields[key] for key in ("service", "scope") if key in fields}
        what = f"get a token for {self._name.host}"
        with self._client.stream("GET", fields["realm"], params=params, auth=self._login) as response:
            if response.status_code != 200:
                raise refused(response, what)
            try:
                body = orjson.loads(small_body(response, what, LARGEST))
                token = body.get("token") or body.get("access_token")
            except (ValueError, AttributeError):
                token = None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise ServeError(Code.UNAVAILABLE, f"{what}: {realm.hostname} answered without one")
        return f"Bearer {token}"


def _blob_content(path: Path, layer: Layer, report: Report) -> Iterator[bytes]:
    sent = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
            sent += len(chunk)
            report(f"pushing {layer.digest[7:19]}", digest=layer.digest, total=layer.size, completed=sent)


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
