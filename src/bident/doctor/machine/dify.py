"""The doors of Dify's proxy: it denies private addresses, the tensor server's among them, unless told otherwise."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bident.connect.dify.door import ADDRESSES as _ADDRESSES
from bident.connect.dify.door import APPLY
from bident.connect.dify.door import DOMAINS as _DOMAINS
from bident.connect.dify.door import HOST_MACHINE as _HOST
from bident.doctor.check import Finding, Fix, Patient
from bident.doctor.machine.surroundings import MachineCheck
from bident.doctor.treatment import replace_file

_RECREATE = f"{APPLY} (a restart does not write its rules anew)"
_PREFIXES = ("SSRF_", "SANDBOX_", "CODE_EXECUTION_", "PLUGIN_DAEMON_")
"""What Dify's variables begin with: the file is another program's without any of them."""
_IGNORED_WHEN_EMPTY = ("SANDBOX_HTTP_PROXY", "SANDBOX_HTTPS_PROXY", "SSRF_PROXY_HTTP_URL", "SSRF_PROXY_HTTPS_URL")
_WIDE = 4096
"""Addresses; a network of more is no list of servers."""
_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*$")


def _variables(text: str) -> dict[str, str]:
    """The variables of an ``.env`` file; of two lines with one name the later one counts."""
    found = {}
    for line in text.splitlines():
        if match := _LINE.match(line):
            found[match[1]] = match[2].split(" #")[0].strip().strip("\"'")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


class _EnvCheck(MachineCheck):
    """A check of Dify's ``docker/.env``, given as PATH or lying in the folder that is."""

    reads_path = True

    def _env(self, patient: Patient) -> tuple[Path, dict[str, str]] | None:
        path = patient.model or (patient.repository / ".env" if patient.repository else None)
        if path is None or not path.is_file() or not (path.name.startswith(".env") or path.suffix == ".env"):
            return None
        variables = _variables(_text(path))
        return (path, variables) if any(name.startswith(_PREFIXES) for name in variables) else None


class DifyPrivateAddresses(_EnvCheck):
    """The first door: without a list of names, the proxy denies every private address."""

    name = "dify-private-addresses"
    title = "Dify's proxy denies its HTTP nodes the way to the tensor server"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        found = self._env(patient)
        if found is None:
            return
        path, variables = found
        if path.name == "ssrf-proxy.env":
            yield self._broken(
                path,
                "the variables of the proxy are in a file of their own",
                f"Dify's compose file does not hand this file on to its proxy: {_DOMAINS} belongs into docker/.env",
                f"move the lines to docker/.env, then {_RECREATE}",
            )
        elif not variables.get(_DOMAINS) and not variables.get(_ADDRESSES):
            yield self._broken(
                path,
                f"neither {_DOMAINS} nor {_ADDRESSES} has a value",
                "from Dify 1.15 on its proxy denies private addresses (the answer is a page of Squid's with status "
                "403), and the tensor server has one",
                f"add {_DOMAINS}={_HOST}, or the name by which Dify's containers reach the server; then {_RECREATE}",
                Fix(f"add {_DOMAINS}={_HOST}", partial(_set, path, _DOMAINS, _HOST)),
            )
        for network in re.split(r"[,\s]+", variables.get(_ADDRESSES, "")):
            if _is_wide(network):
                yield self._risk(
                    path,
                    f"{_ADDRESSES} has {network}",
                    "workflows may then ask every server in that network, not the tensor server alone",
                    f"name the one host instead: {_DOMAINS}={_HOST}; then {_RECREATE}",
                )


class DifyEmptyProxy(_EnvCheck):
    """The second door, which an empty variable does not open."""

    name = "dify-empty-proxy"
    title = "A proxy of Dify's is emptied, which has no effect"

    def examine(self, patient: Patient) -> Iterator[Finding]:
        found = self._env(patient)
        if found is None:
            return
        path, variables = found
        for name in _IGNORED_WHEN_EMPTY:
            if variables.get(name) == "":
                allows = bool(variables.get(_DOMAINS) or variables.get(_ADDRESSES))
                yield self._risk(
                    path,
                    f"{name} is empty",
                    f"Dify's compose file has ${{{name}:-...}}: the part behind :- takes the place of an empty value "
                    "too, so that the proxy stays",
                    f"remove the line; what opens the way is {_DOMAINS}={_HOST}, then {_RECREATE}",
                    None if allows else Fix(f"add {_DOMAINS}={_HOST}", partial(_set, path, _DOMAINS, _HOST)),
                )


def _set(path: Path, name: str, value: str) -> None:
    """Give ``name`` a value in an ``.env`` file: in its line where it has one, else in a new one at the end."""
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not ((match := _LINE.match(line)) and match[1] == name)]
    replace_file(path, "".join(f"{line}\n" for line in (*kept, f"{name}={value}")).encode())


def _is_wide(network: str) -> bool:
    try:
        return ipaddress.ip_network(network, strict=False).num_addresses > _WIDE
    except ValueError:
        return False


_FIRST_RULE = "Squid takes the first rule that fits; what comes after it is not looked at"


class SquidRules(MachineCheck):
    """Squid takes the first rule that fits, from top to bottom."""

    name = "squid-rules"
    title = "A Squid configuration denies the tensor server before it allows it"
    reads_path = True

    def examine(self, patient: Patient) -> Iterator[Finding]:
        path = patient.model
        if path is None or not path.is_file() or ".conf" not in path.suffixes:
            return
        rules = [(number, line.split()) for number, line in enumerate(_text(path).splitlines(), 1) if line.strip()]
        if not any(words[0] == "http_access" for _, words in rules):
            return
        private = _private_lists(words for _, words in rules)
        deny = next((number for number, words in rules if _denies(words, private)), None)
        allows = [number for number, words in rules if _allows(words)]
        if deny is not None and not any(number < deny for number in allows):
            late = f"; line {allows[0]} allows it, and comes too late" if allows else ""
            yield self._broken(
                f"{path}:{deny}",
                f"private addresses are denied here{late}",
                _FIRST_RULE,
                "put the rule that allows the tensor server before it: 'acl tensor dstdomain NAME' and 'http_access "
                f"allow tensor'; in Dify 1.15 and later {_DOMAINS} does that",
            )
        yield from self._after_all(path, rules)
        yield from self._ports(path, rules)

    def _after_all(self, path: Path, rules: list[tuple[int, list[str]]]) -> Iterator[Finding]:
        """Rules behind the one that ends every list of rules."""
        end = next((number for number, words in rules if words[:3] == ["http_access", "deny", "all"]), None)
        late = [number for number, words in rules if words[:2] == ["http_access", "allow"] and end and number > end]
        if late:
            yield self._broken(
                f"{path}:{end}",
                f"everything is denied here; line {late[0]} allows something, and comes too late",
                _FIRST_RULE,
                "put 'http_access deny all' behind all others",
            )

    def _ports(self, path: Path, rules: list[tuple[int, list[str]]]) -> Iterator[Finding]:
        lists = [(number, words[3:]) for number, words in rules if words[:3] == ["acl", "Safe_ports", "port"]]
        denied = any(words[:3] == ["http_access", "deny", "!Safe_ports"] for _, words in rules)
        if lists and denied and not any(_has_port(word, 8000) for _, words in lists for word in words):
            yield self._broken(
                f"{path}:{lists[-1][0]}",
                "port 8000 is not among Safe_ports, and all others are denied",
                "the proxy lets requests through to the ports of its list alone",
                "add: acl Safe_ports port 8000",
            )


def _private_lists(rules: Iterator[list[str]]) -> frozenset[str]:
    """Names of the lists that hold private networks."""
    private = ("10.", "172.16.", "192.168.", "127.")
    found = (words[1] for words in rules if words[0] == "acl" and words[2:3] == ["dst"] and _starts(words[3:], private))
    return frozenset({"to_private_networks", *found})


def _starts(words: list[str], prefixes: tuple[str, ...]) -> bool:
    return any(word.startswith(prefixes) for word in words)


def _denies(words: list[str], private: frozenset[str]) -> bool:
    return words[:2] == ["http_access", "deny"] and bool(private & set(words[2:]))


def _allows(words: list[str]) -> bool:
    """Whether a line allows some private addresses: Dify's own list, or a rule for destinations."""
    if words[0] == "include":
        return len(words) > 1 and "allow_private" in words[1]
    return words[:2] == ["http_access", "allow"] and any("private" in word or "tensor" in word for word in words[2:])


def _has_port(word: str, port: int) -> bool:
    first, _, last = word.partition("-")
    return first.isdecimal() and int(first) <= port <= int(last if last.isdecimal() else first)
