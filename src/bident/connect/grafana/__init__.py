"""Grafana: a dashboard for each engine, and how they get there."""

from bident.connect.grafana.neighbour import Grafana

__all__ = ["Grafana"]
