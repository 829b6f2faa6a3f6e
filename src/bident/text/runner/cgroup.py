"""What a control group leaves to this process: containers and services see the whole machine, but may not use it.

Both hierarchies of Linux are read, the unified one (version 2) and the older ones of one controller each.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ENDLESS = 1 << 60
"""The older hierarchy spells "no limit" as about 2^63 bytes."""


@dataclass(frozen=True)
class Cgroup:
    """The control groups of this process. ``mount`` and ``membership`` are where Linux has them."""

    mount: Path = Path("/sys/fs/cgroup")
    membership: Path = Path("/proc/self/cgroup")

    def cores(self) -> float | None:
        """Cores that the group may use on average; None without a limit."""
        quotas = [_unified_quota(group) for group in self._groups("")]
        quotas += [_older_quota(group) for group in self._groups("cpu")]
        return min((quota for quota in quotas if quota is not None), default=None)

    def memory(self) -> int | None:
        """Bytes that the group may still take, what the kernel would give back counted in; None without a limit."""
        free = [_free(group, "memory.max", "memory.current", "inactive_file") for group in self._groups("")]
        older = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        free += [_free(group, *older) for group in self._groups("memory")]
        return min((each for each in free if each is not None), default=None)

    def _groups(self, controller: str) -> Iterator[Path]:
        """The folders of this process's group and of those it is in; "" is the unified hierarchy."""
        root = self.mount / controller
        if not root.is_dir():
            return
        yield root
        path = root
        for name in self._path(controller).strip("/").split("/"):
            path /= name
            if name in ("", "..") or not path.is_dir():  # seen from a container, the path may lead nowhere
                return
            yield path

    def _path(self, controller: str) -> str:
        with contextlib.suppress(OSError):
            for line in self.membership.read_text().splitlines():
                _, _, rest = line.partition(":")
                controllers, _, path = rest.partition(":")
                if controller in controllers.split(","):
                    return path
        return ""


def _unified_quota(group: Path) -> float | None:
    words = _read(group / "cpu.max").split()
    return _ratio(words[0], words[1]) if len(words) == 2 else None


def _older_quota(group: Path) -> float | None:
    return _ratio(_read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us"))


def _ratio(quota: str, period: str) -> float | None:
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None


def _free(group: Path, limit_file: str, usage_file: str, given_back: str) -> int | None:
    limit, usage = _number(group / limit_file), _number(group / usage_file)
    if limit is None or usage is None or limit >= _ENDLESS:
        return None
    return max(0, limit - usage + _statistic(group, given_back))


def _statistic(group: Path, name: str) -> int:
    for line in _read(group / "memory.stat").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdecimal():
            return int(value)
    return 0


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text.isdecimal() else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
