"""Debian's Prometheus on both real servers, as docs/how-to/prometheus.md says: files, rules, dashboards."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.ports import free_port
from benchmarks.servers import Server
from bident.connect.prometheus.server import PrometheusServer
from tests.conftest import write_identity
from tests.shell import own_environment, printed, scripts, typed
from tests.text.sample_models import smollm2

pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "prometheus.md"
CURL, PROMETHEUS, CHECK, GRAFANA = scripts(PAGE)
_DEADLINE_SECONDS = 60.0
_DOORS = {"8002": "METRICS", "11434": "TEXT"}
"""Which door has a port on the page."""
_ENGINES = ("tensor", "text")


class Site:
    """A folder with both servers, and a Prometheus that was told of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {name: free_port() for name in ("HTTP", "GRPC", "METRICS", "TEXT")}
        self.prometheus_port = free_port()
        self.prometheus = PrometheusServer(f"http://127.0.0.1:{self.prometheus_port}")
        ports = {f"BIDENT_{name}_PORT": str(port) for name, port in self.ports.items()}
        text = {"BIDENT_TEXT_MODELS": str(folder / "store"), "BIDENT_TEXT_LIBRARY": str(folder / "smollm2.gguf")}
        self._environment = own_environment(**ports, **text)

    def types(self, command: str, folder: str = ".") -> subprocess.CompletedProcess[str]:
        """``command`` in a shell."""
        return typed(command, self.folder / folder, self._environment)

    def does(self, command: str, folder: str = ".") -> str:
        """What a command prints that works."""
        return printed(self.types(command, folder))

    def ask(self) -> None:
        """One request to each engine."""
        echo = {"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [time.monotonic()]}]}
        self._post("HTTP", "/v2/models/echo/infer", echo)
        say = {"model": "smollm2", "prompt": "Hello", "stream": False, "options": {"num_predict": 4}}
        self._post("TEXT", "/api/generate", say)

    def _post(self, door: str, path: str, body: dict[str, Any]) -> None:
        url = f"http://127.0.0.1:{self.ports[door]}{path}"
        assert httpx.post(url, json=body, timeout=60, trust_env=False).status_code == 200

    def eventually(self, missing: Callable[[], list[str]]) -> None:
        """Keep asking the models until nothing is ``missing``."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while names := missing():
            assert time.monotonic() < deadline, names
            self.ask()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("monitored"))
    (made.folder / "smollm2.gguf").symlink_to(smollm2())
    more = "response_cache { enable: true } dynamic_batching { }"
    write_identity(made.folder / "model_repository", "echo", more=more)
    try:
        made.does("bident up --metrics-config summary_latencies=true --cache-config local,size=1048576")
        write, *_, start = PROMETHEUS.splitlines()
        made.does(f"{write} --set interval=1s")
        made.does(GRAFANA)
        here = start.replace("127.0.0.1:9090", f"127.0.0.1:{made.prometheus_port}")
        line = f"cd {made.folder / 'monitoring'} && exec {here} --storage.tsdb.path={made.folder / 'data'}"
        log = made.folder / "prometheus.log"
        with Server(["bash", "-c", line], made.prometheus_port, log, ready_path="/-/ready"):
            yield made
    finally:
        made.types("bident down")


def test_the_page_is_true(site: Site) -> None:
    """Its other commands are good, and its alarms are those that there are."""
    _, change_folder, *tools, _ = PROMETHEUS.splitlines()
    assert change_folder == "cd monitoring"
    for command in tools:
        assert "SUCCESS" in site.does(command, "monitoring")
    for command in CURL.splitlines():
        here = re.sub(r":(\d+)/", lambda found: f":{site.ports[_DOORS[found[1]]]}/", command)
        assert "# HELP" in site.does(here.replace("curl", "curl --silent"))
    rules = site.prometheus.groups()
    alarms = {rule["name"] for group in rules for rule in group["rules"] if rule["type"] == "alerting"}
    assert alarms == set(re.findall(r"^\| `(\w+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def test_the_rules_are_checked(site: Site) -> None:
    assert "SUCCESS: 20 rules found" in site.does("promtool check rules bident.rules.yml", "monitoring")
    models = site.types("promtool check rules --lint=all --lint-fatal bident-models.rules.yml", "monitoring")
    assert models.returncode == 0, models.stdout + models.stderr
    broken = site.folder / "monitoring" / "broken.test.yml"
    tests = (site.folder / "monitoring" / "bident.test.yml").read_text(encoding="utf-8")
    broken.write_text(tests.replace("value: 40}", "value: 41}"), encoding="utf-8")
    assert site.types("promtool test rules broken.test.yml", "monitoring").returncode != 0


def test_the_figures_of_the_text_server_are_well_named(site: Site) -> None:
    url = f"http://127.0.0.1:{site.ports['TEXT']}/metrics"
    site.does(f"curl -sS {url} | promtool check metrics")


@pytest.mark.parametrize("engine", _ENGINES)
def test_every_expression_of_a_dashboard_has_data(site: Site, engine: str) -> None:
    board = json.loads(
        (site.folder / "monitoring" / "dashboards" / f"bident-{engine}.json").read_text(encoding="utf-8")
    )
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    assert len(expressions) > 20
    filled = [
        each.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$model", ".*")
        for each in expressions
    ]
    assert not any("$" in each for each in filled)
    site.eventually(lambda: [each for each in filled if not site.prometheus.values(each)])


def test_what_is_recorded_has_data(site: Site) -> None:
    groups = site.prometheus.groups()
    recorded = [rule["name"] for group in groups for rule in group["rules"] if rule["type"] == "recording"]
    assert len(recorded) == 11
    site.eventually(lambda: [name for name in recorded if not site.prometheus.values(name)])
    (speed,) = site.prometheus.values("model:bident_text_answer_speed:mean5m")
    assert speed["metric"]["model"] == "smollm2:latest"
    assert float(speed["value"][1]) > 1


def test_the_check_sees_every_hop(site: Site) -> None:
    asked = f"--json --set prometheus={site.prometheus.url}"
    told = json.loads(site.does(f"{CHECK.strip()} {asked}"))
    assert [hop["name"] for hop in told["hops"]] == [
        "here -> tensor server",
        "here -> text server",
        "here -> Prometheus",
        "Prometheus -> tensor server",
        "Prometheus -> text server",
        "rules",
    ]
    assert told["works"]
    grafana = site.types(f"bident connect grafana --check {asked} --set grafana=http://127.0.0.1:9")
    hops = json.loads(grafana.stdout)["hops"]
    assert [hop["works"] for hop in hops] == [True, True, False]
    assert "of 25 expressions have data" in hops[0]["seen"]
