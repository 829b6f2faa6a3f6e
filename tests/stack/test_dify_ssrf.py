"""Dify's SSRF proxy refuses the tensor server, and lets it through with what ``bident connect dify`` writes.

The proxy is Debian's Squid with the order of Dify's rules; the requests are those of Dify's own engine and of
``bident connect dify --check``, from a network namespace of their own: Squid treats loopback differently.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.servers import bident_command
from tests import shell
from tests.stack.dify_network import API, KEY, NAME, NEWER, OLDER, PORT, SERVER, Network, entry_point, network
from tests.stack.dify_site import run

IRIS = {"X_1": 5.1, "X_2": 3.5, "X_3": 1.4, "X_4": 0.2}


@dataclass(frozen=True)
class Site:
    network: Network
    url: str
    sandbox: str
    folder: Path

    def connect(self, *words: object) -> subprocess.CompletedProcess[str]:
        """``bident connect dify``, typed beside Dify's API."""
        command = [*self.network.inside("api"), bident_command(), "connect", "dify", "--url", self.url, *words]
        shown = {**os.environ, "BIDENT_API_KEY": KEY}
        return subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, timeout=60, check=False, env=shown
        )

    def export(self, host: str, key: str = KEY) -> Path:
        """What is written for Dify, and the key filled in as a person does after the import."""
        folder = self.folder / host
        done = self.connect("--host", host, "--write", folder, "--force")
        assert done.returncode == 0, done.stderr
        app = folder / "workflows" / "iris_sklearn.yml"
        written = app.read_text()
        assert KEY not in written
        document = yaml.safe_load(written)
        (secret,) = (each for each in document["workflow"]["environment_variables"] if each["value_type"] == "secret")
        assert secret["value"] == ""
        secret["value"] = key
        app.write_text(yaml.safe_dump(document))
        return folder

    def iris(self, app: Path, proxy: str) -> Any:
        """What Dify's engine gets through ``proxy``."""
        return run(app, self.sandbox, IRIS, self.network.inside("api"), HTTP_PROXY=proxy, NO_PROXY="127.0.0.1")

    def through(self, proxy: str, url: str) -> str:
        """The status of GET ``url`` through ``proxy``."""
        done = self.network.curl(url, "--proxy", proxy, "--output", "/dev/null", "--write-out", "%{http_code}")
        return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    shell.made("dify")
    folder = tmp_path_factory.mktemp("ssrf")
    repository = folder / "model_repository"
    subprocess.run([bident_command(), "zoo", "build", "iris_sklearn", "--into", repository], check=True, timeout=60)
    with network(folder) as made, made.server(repository) as url, made.sandbox() as sandbox:
        yield Site(made, url, sandbox, folder)


def variables(folder: Path) -> dict[str, str]:
    """What Docker reads from the file for ``docker/.env``."""
    lines = (folder / "ssrf.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("host", [NAME, SERVER])
def test_refused_by_default_and_let_through_with_the_variable(site: Site, host: str) -> None:
    folder = site.export(host)
    app = folder / "workflows" / "iris_sklearn.yml"
    (variable,) = variables(folder)

    with site.network.squid(NEWER, entry_point({})) as proxy:
        refused = site.iris(app, proxy)
        assert "Dify's ssrf_proxy refused to pass the request on" in refused["error"]
        assert variable in refused["error"]
        checked = site.connect("--host", host, "--check", "--set", f"proxy={proxy}")
        assert checked.returncode == 1
        assert "refused with 403 by Squid" in checked.stdout
        assert f"{variable}={variables(folder)[variable]}" in checked.stdout.replace("\n", "")

    with site.network.squid(NEWER, entry_point(variables(folder))) as proxy:
        assert site.iris(app, proxy)["outputs"]["best"] == "setosa"
        checked = site.connect("--host", host, "--check", "--set", f"proxy={proxy}")
        assert checked.returncode == 0, checked.stdout
        assert "passes on to" in checked.stdout


def test_nothing_else_is_let_through(site: Site) -> None:
    allowed = entry_point(variables(site.export(NAME)))
    with site.network.squid(NEWER, allowed) as proxy:
        assert site.through(proxy, f"http://{NAME}:{PORT}/v2/health/ready") == "200"
        assert site.through(proxy, f"http://{API}:{PORT}/") == "403"
        assert site.through(proxy, "http://10.0.0.1:8000/") == "403"


def test_a_name_that_the_proxy_does_not_know_is_another_matter(site: Site) -> None:
    host = "nobody.infer.local"
    with site.network.squid(NEWER, entry_point(variables(site.export(host)))) as proxy:
        checked = site.connect("--host", host, "--check", "--set", f"proxy={proxy}")
    assert checked.returncode == 1
    assert "Squid could not reach" in checked.stdout
    assert "the container ssrf_proxy must know nobody.infer.local" in checked.stdout


def test_a_wrong_key_looks_like_the_proxy_to_dify(site: Site) -> None:
    """Dify takes every 401 and 403 with Squid's mark on it for a refusal of Squid; the page says so."""
    folder = site.export(NAME, key="wrong")
    with site.network.squid(NEWER, entry_point(variables(folder))) as proxy:
        refused = site.iris(folder / "workflows" / "iris_sklearn.yml", proxy)["error"]
        url = f"http://{NAME}:{PORT}/v2/models/iris_sklearn"
        head = site.network.curl(url, "--proxy", proxy, "--head").stdout
    assert "the tensor server answered 401: this server wants an API key" in refused
    assert head.startswith("HTTP/1.1 401")
    assert "via: 1.1 ssrf_proxy (squid/" in head.lower()
    assert "x-squid-error" not in head.lower()


@pytest.mark.parametrize("host", [NAME, SERVER])
def test_dify_1_14_takes_a_file_with_the_rules(site: Site, host: str) -> None:
    folder = site.export(host)
    app = folder / "workflows" / "iris_sklearn.yml"
    with site.network.squid(OLDER, "") as proxy:
        assert "Dify's ssrf_proxy refused" in site.iris(app, proxy)["error"]
    with site.network.squid(OLDER, (folder / "dify-1.14" / "bident.conf").read_text()) as proxy:
        assert site.iris(app, proxy)["outputs"]["best"] == "setosa"
