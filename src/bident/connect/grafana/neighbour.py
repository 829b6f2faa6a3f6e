"""Grafana: dashboards, and the provisioning files that bring them in."""

from __future__ import annotations

from collections.abc import Iterator

from bident.connect.elsewhere import Elsewhere
from bident.connect.grafana.boards import BOARDS
from bident.connect.grafana.panels import Dashboard
from bident.connect.neighbour import File, Hop, Neighbour, Wanted, failed, until_failure
from bident.connect.prometheus.missing import TENSOR_JOB, TEXT_JOB
from bident.connect.prometheus.server import DEFAULT_URL as PROMETHEUS_URL
from bident.connect.prometheus.server import PrometheusServer
from bident.connect.site import Site
from bident.errors import ServeError
from bident.yaml import to_yaml

_GRAFANA_URL = "http://127.0.0.1:3000"
_FOLDER = "/var/lib/grafana/dashboards"


class _GrafanaServer(Elsewhere):
    protocol = "Grafana's API"
    flag = "--set grafana=URL"


class Grafana(Neighbour):
    """Shows what Prometheus has recorded."""

    name = "grafana"
    summary = "shows what Prometheus has: one dashboard for each engine, ready to import or to provision"
    options = {  # noqa: RUF012
        "prometheus": f"where Grafana, and --check, find Prometheus; {PROMETHEUS_URL} without it",
        "grafana": f"where Grafana answers, for --check; {_GRAFANA_URL} without it",
        "folder": f"where the dashboards lie on Grafana's machine; {_FOLDER} without it",
    }

    def files(self, site: Site, wanted: Wanted) -> list[File]:
        prometheus = wanted.option("prometheus", PROMETHEUS_URL)
        return [
            *(File(f"dashboards/{board.uid}.json", board.json(), board.about) for board in _boards(site)),
            File("provisioning/datasources/bident.yml", _source(prometheus), "names Prometheus to Grafana"),
            File("provisioning/dashboards/bident.yml", _provider(wanted), "has Grafana read the dashboards"),
        ]

    def steps(self, site: Site, wanted: Wanted) -> list[str]:
        folder = wanted.option("folder", _FOLDER)
        return [
            "Prometheus comes first: bident connect prometheus",
            "By hand: in Grafana, Dashboards > New > Import, and give it each file of dashboards/.",
            f"Or provisioned: provisioning/ to /etc/grafana/provisioning, dashboards/ to {folder}, then restart it",
            "bident connect grafana --check",
        ]

    def check(self, site: Site, wanted: Wanted) -> Iterator[Hop]:
        return until_failure(_hops(site, wanted))


def _boards(site: Site) -> list[Dashboard]:
    """Those of the engines that run."""
    servers = {TENSOR_JOB: site.tensor, TEXT_JOB: site.text}
    return [board for board in BOARDS if servers[board.job] is not None]


def _source(prometheus: str) -> str:
    source = {"name": "Prometheus", "type": "prometheus", "access": "proxy", "url": prometheus, "isDefault": True}
    return to_yaml({"apiVersion": 1, "datasources": [source]})


def _provider(wanted: Wanted) -> str:
    folder = {"path": wanted.option("folder", _FOLDER)}
    return to_yaml(
        {"apiVersion": 1, "providers": [{"name": "bident", "folder": "Bident", "type": "file", "options": folder}]}
    )


def _hops(site: Site, wanted: Wanted) -> Iterator[Hop]:
    server = PrometheusServer(wanted.option("prometheus", PROMETHEUS_URL))
    for board in _boards(site):
        yield _board_hop(server, board)
    grafana = _GrafanaServer(wanted.option("grafana", _GRAFANA_URL))
    cure = "start it, or say where it is: --set grafana=URL"
    try:
        version = grafana.get_json("/api/health")["version"]
    except (ServeError, KeyError, TypeError) as error:
        yield failed("here -> Grafana", error, f"{grafana.url} is no Grafana", cure)
    else:
        yield Hop("here -> Grafana", True, f"Grafana {version} answers at {grafana.url}")


def _board_hop(server: PrometheusServer, board: Dashboard) -> Hop:
    """How many of a dashboard's expressions have data now; one is enough to show that it is fed."""
    name = f"Prometheus -> {board.uid}"
    asked = [filled_in(expression) for expression in board.expressions()]
    try:
        empty = [expression for expression in asked if not server.values(expression)]
    except ServeError as error:
        return Hop(name, False, error.message, "bident connect prometheus --check says more; --set prometheus=URL")
    if len(empty) == len(asked):
        return Hop(name, False, "it has none of the figures", "bident connect prometheus --check says why")
    return Hop(name, True, f"{len(asked) - len(empty)} of {len(asked)} expressions have data")


def filled_in(expression: str) -> str:
    """``expression`` as Grafana asks it for all servers and models, over some scrapes."""
    filled = {"$__rate_interval": "5m", "$instance": ".*", "$model": ".*"}
    for variable, value in filled.items():
        expression = expression.replace(variable, value)
    return expression
