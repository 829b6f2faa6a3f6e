"""The dashboards are what Grafana takes, and show what the servers export and nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from bident.connect.grafana import Grafana
from bident.connect.grafana.boards import BOARDS, TENSOR, TEXT
from bident.connect.grafana.panels import Dashboard
from bident.connect.neighbour import Wanted
from bident.doors.metrics import FAMILIES as TENSOR_FAMILIES
from bident.text.doors.metrics import FAMILIES as TEXT_FAMILIES
from tests.unit.connect.sites import NOBODY, answering, site

_OF_HISTOGRAMS = re.compile(r"_(bucket|sum|count)$")


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_the_json(board: Dashboard) -> None:
    read = json.loads(board.json())
    panels = read["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    covered = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(set(covered)) == len(covered), "panels lie over each other"
    assert {variable["name"] for variable in read["templating"]["list"]} == {"source", "instance", "model"}
    for panel in panels:
        assert panel["title"]
        assert [target["refId"] for target in panel.get("targets", ())] == sorted(
            {target["refId"] for target in panel.get("targets", ())}
        )
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert asked == board.expressions()


@pytest.mark.parametrize(
    ("board", "families"), [(TENSOR, TENSOR_FAMILIES), (TEXT, TEXT_FAMILIES)], ids=["tensor", "text"]
)
def test_the_figures_exist(board: Dashboard, families: Any) -> None:
    known = {family.name for family in families} | {"up"}
    for expression in board.expressions():
        for name in re.findall(r"([a-z_]+)\{", expression):
            assert name in known or _OF_HISTOGRAMS.sub("", name) in known, expression


def test_engines_that_run_have_a_dashboard() -> None:
    paths = [file.path for file in Grafana().files(site("iris"), Wanted())]
    assert paths[:2] == ["dashboards/bident-tensor.json", "dashboards/bident-text.json"]
    assert "dashboards/bident-tensor.json" not in [file.path for file in Grafana().files(site(), Wanted())]


def test_provisioning() -> None:
    wanted = Wanted(options={"prometheus": "http://prometheus:9090", "folder": "/boards"})
    files = {file.path: file.text for file in Grafana().files(site("iris"), wanted)}
    (source,) = yaml.safe_load(files["provisioning/datasources/bident.yml"])["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    (provider,) = yaml.safe_load(files["provisioning/dashboards/bident.yml"])["providers"]
    assert provider["options"] == {"path": "/boards"}


def test_the_way_is_tried() -> None:
    full = {"/api/v1/query": {"data": {"result": [{"value": [0, "1"]}]}}}
    empty = {"/api/v1/query": {"data": {"result": []}}}
    with answering({"/api/health": {"version": "12.0.1"}}) as grafana:

        def hops(prometheus: str, at: str = grafana) -> list[tuple[bool, str]]:
            wanted = Wanted(options={"prometheus": prometheus, "grafana": at})
            return [(hop.works, hop.seen) for hop in Grafana().check(site("iris"), wanted)]

        with answering(full) as url:
            assert hops(url)[-1] == (True, f"Grafana 12.0.1 answers at {grafana}")
            assert "expressions have data" in hops(url)[0][1]
            assert [works for works, _ in hops(url, NOBODY)] == [True, True, False]
            assert hops(url, url)[-1][0] is False
        with answering(empty) as url:
            assert hops(url) == [(False, "it has none of the figures")]
        assert [works for works, _ in hops(NOBODY)] == [False]
        assert [works for works, _ in hops(grafana)] == [False]
