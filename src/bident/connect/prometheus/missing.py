"""Alarms for models that were served and are no longer: only who looks now knows what is missing later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

TENSOR_JOB, TEXT_JOB = "bident-tensor", "bident-text"
"""The rules and the dashboards name the jobs so."""
_ALARM = "BidentModelMissing"
_UP = f'up{{job="{TENSOR_JOB}"}}'


def missing_rules(models: Sequence[str]) -> dict[str, Any]:
    """A file of rules with one alarm for each of ``models`` of the tensor server."""
    rules = [
        {
            "alert": _ALARM,
            "expr": f"absent({_series(name)}) and on (job) ({_UP} == 1)",
            "for": "2m",
            # Said here too, though the series has it: promtool takes rules with the same labels for copies.
            "labels": {"severity": "critical", "model": _shown(name)},
            "annotations": _annotations(name),
        }
        for name in models
    ]
    return {"groups": [{"name": "bident-models", "rules": rules}]}


def missing_tests(models: Sequence[str], rules: str) -> dict[str, Any]:
    """Tests of the file ``rules``, which holds the above: none of ``models`` is there, then all are."""
    up = {"series": _UP, "values": "1x10"}
    alarms = [
        {
            "exp_labels": {"severity": "critical", "job": TENSOR_JOB, "model": _shown(name)},
            "exp_annotations": _annotations(name),
        }
        for name in models
    ]
    served = [{"series": _series(name), "values": "0x10"} for name in models]
    return {
        "rule_files": [rules],
        "evaluation_interval": "1m",
        "tests": [_test("no model is served", [up], alarms), _test("all models are served", [up, *served], [])],
    }


def _test(name: str, series: list[dict[str, str]], alarms: list[dict[str, Any]]) -> dict[str, Any]:
    expected = {"alertname": _ALARM, "eval_time": "5m", "exp_alerts": alarms}
    return {"name": name, "interval": "1m", "input_series": series, "alert_rule_test": [expected]}


def _series(name: str) -> str:
    # PromQL escapes in texts what JSON does.
    return f'nv_inference_request_success{{job="{TENSOR_JOB}",model={json.dumps(name, ensure_ascii=False)}}}'


def _shown(name: str) -> str:
    # Prometheus fills in templates in labels and annotations; a name is none.
    return name.replace("{{", "{ {")


def _annotations(name: str) -> dict[str, str]:
    shown = _shown(name)
    return {"summary": f"{shown} is no longer served", "cure": f"bident ls says why; bident load {shown}"}
