"""What the metrics page says of a model, so that it can be compared."""

from __future__ import annotations

import re
import urllib.request
from dataclasses import dataclass
from typing import Any

_LINE = re.compile(r"^(nv_\w+)\{(.*)\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class MetricsStep:
    """The series of ``model``: counts as they are, durations as whether there are any."""

    model: str

    def send(self, servers: Any) -> dict[str, Any]:
        url = f"http://127.0.0.1:{servers.server.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            page = answer.read().decode()
        found = {}
        for name, labels, value in _LINE.findall(page):
            if f'model="{self.model}"' in labels:
                series = name + "," + ",".join(sorted(labels.split(",")))
                found[series] = float(value) > 0 if re.search("_us$|duration|secs", name) else float(value)
        return {"series": found}
