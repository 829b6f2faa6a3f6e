"""Dashboards in a few words: rows of panels, and the JSON that Grafana imports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_WIDTH = 24
"""Of Grafana's grid, in columns."""
_HEIGHT, _LOW = 8, 4
_SCHEMA = 39
_SOURCE = {"type": "prometheus", "uid": "${source}"}


@dataclass(frozen=True)
class Line:
    """One expression, and what its series are called."""

    expr: str
    legend: str = "{{model}}"


@dataclass(frozen=True)
class Panel:
    """A graph, or one number where ``is_number``. ``unit`` is Grafana's word for it."""

    title: str
    lines: Sequence[Line]
    unit: str = "short"
    about: str = ""
    is_number: bool = False


@dataclass(frozen=True)
class Row:
    """Panels side by side, under a title."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Dashboard:
    """``known_by``: a metric whose labels say which servers and models there are."""

    uid: str
    title: str
    about: str
    job: str
    known_by: str
    rows: Sequence[Row]

    def json(self) -> str:
        """As Grafana imports it."""
        board = {
            "uid": self.uid,
            "title": self.title,
            "description": self.about,
            "tags": ["bident"],
            "schemaVersion": _SCHEMA,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "templating": {"list": [*self._variables()]},
            "panels": [*self._panels()],
        }
        return json.dumps(board, indent=2) + "\n"

    def expressions(self) -> list[str]:
        """All that it asks Prometheus."""
        return [line.expr for row in self.rows for panel in row.panels for line in panel.lines]

    def _variables(self) -> Iterator[dict[str, Any]]:
        yield {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
        series = f'{self.known_by}{{job="{self.job}"}}'
        for name, label, of in (
            ("instance", "Server", series),
            ("model", "Model", f'{series[:-1]},instance=~"$instance"}}'),
        ):
            yield {
                "name": name,
                "label": label,
                "type": "query",
                "datasource": _SOURCE,
                "query": {"query": f"label_values({of}, {name})", "refId": name},
                "refresh": 2,
                "sort": 1,
                "multi": True,
                "includeAll": True,
                "allValue": ".*",
                "current": {"text": "All", "value": "$__all"},
            }

    def _panels(self) -> Iterator[dict[str, Any]]:
        top = number = 0
        for row in self.rows:
            number += 1
            yield {"id": number, "type": "row", "title": row.title, "gridPos": {"h": 1, "w": _WIDTH, "x": 0, "y": top}}
            top += 1
            width = _WIDTH // len(row.panels)
            height = _LOW if all(panel.is_number for panel in row.panels) else _HEIGHT
            for column, panel in enumerate(row.panels):
                number += 1
                place = {"h": height, "w": width, "x": column * width, "y": top}
                yield {"id": number, "gridPos": place, **_panel(panel)}
            top += height


def _panel(panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": line.expr, "legendFormat": line.legend}
        for at, line in enumerate(panel.lines)
    ]
    shown = {"title": panel.title, "description": panel.about, "datasource": _SOURCE, "targets": targets}
    field = {"unit": panel.unit, "min": 0}
    if panel.is_number:
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none"}
        return {"type": "stat", **shown, "fieldConfig": {"defaults": field, "overrides": []}, "options": options}
    field["custom"] = {"fillOpacity": 10, "showPoints": "never"}
    options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    return {"type": "timeseries", **shown, "fieldConfig": {"defaults": field, "overrides": []}, "options": options}
