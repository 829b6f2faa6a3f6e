"""Prometheus: what to scrape, what to record, and when to wake somebody."""

from bident.connect.prometheus.neighbour import Prometheus

__all__ = ["Prometheus"]
