"""Compose files, Dify's variables and Squid's rules that lead nowhere."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bident.doctor.check import Check, Patient
from bident.doctor.machine.compose import ComposeFile, read_compose
from bident.doctor.machine.containers import (
    ComposeNetworks,
    ComposePorts,
    ComposeSharedMemory,
    ContainerEngine,
    LocalhostInContainer,
)
from bident.doctor.machine.dify import DifyEmptyProxy, DifyPrivateAddresses, SquidRules
from bident.doctor.machine.neighbour_files import NeighbourLocalhost
from bident.doctor.machine.surroundings import Surroundings
from tests.unit.doctor.found import findings, only

COMPOSE = """
services:
  tensor:
    image: nvcr.io/nvidia/tritonserver:25.05-py3
    shm_size: 1gb
    networks: [models]
    ports: ["127.0.0.1:8000:8000"]
  gateway:
    image: gateway
    environment:
      TENSOR: http://tensor:8000
    networks: [models, outside]
networks:
  models: {}
  outside: {external: true, name: docker_default}
"""

ALL: list[Check] = [
    ComposeFile(),
    ComposeNetworks(),
    ComposePorts(),
    ComposeSharedMemory(),
    LocalhostInContainer(),
    DifyPrivateAddresses(),
    DifyEmptyProxy(),
    SquidRules(),
]


LAUGHS = (
    "a: &a [x, x, x, x, x, x, x, x]\n"
    + "".join(f"{to}: &{to} [{', '.join([f'*{of}'] * 8)}]\n" for of, to in pairwise("abcdefghij"))
    + "services: {x: {environment: *j, command: *j, networks: *j, ports: *j}}"
)
"""A small file that stands for 8^10 words, if somebody writes them all out."""


def _patient(tmp_path: Path, text: str, name: str = "docker-compose.yml") -> Patient:
    (tmp_path / name).write_text(text)
    return Patient(model=tmp_path / name)


def test_a_file_without_faults(tmp_path: Path) -> None:
    patient = _patient(tmp_path, COMPOSE)
    assert [findings(check, patient) for check in ALL] == [[]] * len(ALL)
    assert findings(ComposeNetworks(), Patient(tmp_path)) == []


def test_a_service_on_another_network(tmp_path: Path) -> None:
    found = only(ComposeNetworks(), _patient(tmp_path, COMPOSE.replace("[models, outside]", "[outside]")))
    assert found.where.endswith("gateway")
    assert "tensor, which is on models; gateway is on outside" in found.seen


def test_the_folder_of_a_compose_file_will_do(tmp_path: Path) -> None:
    _patient(tmp_path, COMPOSE.replace("[models, outside]", "[outside]"))
    assert only(ComposeNetworks(), Patient(tmp_path)).where.startswith(str(tmp_path / "docker-compose.yml"))


def test_a_name_of_another_project(tmp_path: Path) -> None:
    text = COMPOSE.replace("http://tensor:", "http://triton-gap-triton-1:")
    assert findings(ComposeNetworks(), _patient(tmp_path, text)) == []
    found = only(ComposeNetworks(), _patient(tmp_path, text.replace("[models, outside]", "[models]")))
    assert "triton-gap-triton-1" in found.seen


def test_names_on_the_hosts_network(tmp_path: Path) -> None:
    text = COMPOSE.replace("networks: [models, outside]", "network_mode: host")
    assert "network_mode is host" in only(ComposeNetworks(), _patient(tmp_path, text)).seen


@pytest.mark.parametrize(
    ("address", "seen"),
    [
        ("http://localhost:8000", "localhost:8000"),
        ("http://127.0.0.1:11434/v1", "127.0.0.1:11434"),
        ("http://host.docker.internal:8000", "extra_hosts does not name"),
    ],
)
def test_localhost_is_the_container(tmp_path: Path, address: str, seen: str) -> None:
    text = COMPOSE.replace("http://tensor:8000", address)
    assert seen in only(LocalhostInContainer(), _patient(tmp_path, text)).seen
    known = text.replace("image: gateway", 'image: gateway\n    extra_hosts: ["host.docker.internal:host-gateway"]')
    assert len(findings(LocalhostInContainer(), _patient(tmp_path, known))) == ("internal" not in address)
    alone = COMPOSE.replace("image: gateway", f"image: gateway\n    network_mode: host\n    command: serve {address}")
    assert findings(LocalhostInContainer(), _patient(tmp_path, alone)) == []


def test_ports_for_everybody(tmp_path: Path) -> None:
    found = only(ComposePorts(), _patient(tmp_path, COMPOSE.replace("127.0.0.1:8000:8000", "8000:8000")))
    assert '"127.0.0.1:8000:8000"' in found.cure
    several = COMPOSE.replace("127.0.0.1:8000:8000", "9000-9002:8000-8002/tcp")
    assert len(findings(ComposePorts(), _patient(tmp_path, several))) == 1
    others = COMPOSE.replace("127.0.0.1:8000:8000", "80:80")
    assert findings(ComposePorts(), _patient(tmp_path, others)) == []


def test_little_shared_memory(tmp_path: Path) -> None:
    assert "shm_size" in only(ComposeSharedMemory(), _patient(tmp_path, COMPOSE.replace("shm_size: 1gb", ""))).seen


def test_nothing_to_run_it_with(tmp_path: Path) -> None:
    patient = _patient(tmp_path, COMPOSE)
    assert "nerdctl" in only(ContainerEngine(Surroundings({"PATH": str(tmp_path)})), patient).seen
    (tmp_path / "podman").write_text("#!/bin/sh\n")
    (tmp_path / "podman").chmod(0o755)
    assert findings(ContainerEngine(Surroundings({"PATH": str(tmp_path)})), patient) == []


@pytest.mark.parametrize("text", ["services:\n\t- x", "a: &a [*a", "\0", "{" * 1200])
def test_files_that_are_no_yaml(tmp_path: Path, text: str) -> None:
    patient = _patient(tmp_path, text)
    assert str(patient.model) in only(ComposeFile(), patient).seen
    assert findings(ComposeNetworks(), patient) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "services: 5",
        "services: {a: 5, 7: {ports: 5, networks: 3, environment: 4, extra_hosts: 1}}",
        "services: {a: {networks: {b: {aliases: 5}}, ports: [{target: 80}, 80, null], environment: [A, 5, B=1]}}",
        "services: {a: {command: [1, {x: 2}], extra_hosts: {x: y}}}\nnetworks: [a]",
        LAUGHS,
    ],
)
def test_any_other_yaml_is_survived(tmp_path: Path, text: str) -> None:
    patient = _patient(tmp_path, text)
    assert [findings(check, patient) for check in ALL] == [[]] * len(ALL)
    assert patient.model is not None
    read_compose(patient.model)


def test_localhost_in_a_neighbours_own_file(tmp_path: Path) -> None:
    text = "model_list:\n  # http://localhost:8000\n  - litellm_params: {api_base: 'http://localhost:11434'}\n"
    found = only(NeighbourLocalhost(), _patient(tmp_path, text, "config.yaml"))
    assert found.where.endswith("config.yaml:3")
    assert "http://host.docker.internal:11434" in found.cure
    assert findings(NeighbourLocalhost(), _patient(tmp_path, text.replace("11434", "9"), "config.yaml")) == []
    assert findings(NeighbourLocalhost(), _patient(tmp_path, COMPOSE.replace("tensor:8000", "localhost:8000"))) == []


@given(st.binary(max_size=300), st.sampled_from([".env", "x.env", "squid.conf", "compose.yml", "config.yaml"]))
def test_any_bytes_are_survived(content: bytes, name: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(b"SSRF_X=1\n" + content + b"\nhttp_access deny x")
        for check in (*ALL, NeighbourLocalhost()):
            findings(check, Patient(model=path))


ENV = "SSRF_HTTP_PORT=3128\nSANDBOX_PORT=8194\n"


def test_dify_that_denies_private_addresses(tmp_path: Path) -> None:
    patient = _patient(tmp_path, f"{ENV}SSRF_PROXY_ALLOW_PRIVATE_DOMAINS=\n", ".env")
    found = only(DifyPrivateAddresses(), patient)
    assert "--force-recreate ssrf_proxy" in found.cure
    assert found.fix is not None
    found.fix.apply()
    assert findings(DifyPrivateAddresses(), patient) == []
    assert (tmp_path / ".env").read_text() == f"{ENV}SSRF_PROXY_ALLOW_PRIVATE_DOMAINS=host.docker.internal\n"
    assert (tmp_path / ".env.bak").exists()


@pytest.mark.parametrize("line", ["SSRF_PROXY_ALLOW_PRIVATE_DOMAINS=triton", "SSRF_PROXY_ALLOW_PRIVATE_IPS='10.0.0.5'"])
def test_dify_that_allows_one_host(tmp_path: Path, line: str) -> None:
    patient = _patient(tmp_path, f"{ENV}{line}  # the tensor server\n", ".env")
    assert findings(DifyPrivateAddresses(), patient) == []
    assert findings(DifyPrivateAddresses(), Patient(tmp_path)) == []


def test_dify_that_allows_too_much_or_in_the_wrong_file(tmp_path: Path) -> None:
    text = f"{ENV}SSRF_PROXY_ALLOW_PRIVATE_IPS=10.0.0.5,172.16.0.0/12\n"
    assert "172.16.0.0/12" in only(DifyPrivateAddresses(), _patient(tmp_path, text, ".env")).seen
    found = findings(DifyPrivateAddresses(), _patient(tmp_path, text, "ssrf-proxy.env"))
    assert "file of their own" in found[0].seen


def test_an_emptied_proxy_has_no_effect(tmp_path: Path) -> None:
    patient = _patient(tmp_path, f"{ENV}SANDBOX_HTTP_PROXY=\n", ".env")
    found = only(DifyEmptyProxy(), patient)
    assert "${SANDBOX_HTTP_PROXY:-...}" in found.cause
    assert found.fix is not None
    found.fix.apply()
    assert findings(DifyPrivateAddresses(), patient) == []
    assert only(DifyEmptyProxy(), patient).fix is None


def test_another_programs_variables(tmp_path: Path) -> None:
    patient = _patient(tmp_path, "PORT=1\n", ".env")
    assert findings(DifyPrivateAddresses(), patient) == findings(DifyEmptyProxy(), patient) == []


SQUID = """
acl local src 10.0.0.0/8
acl to_private_networks dst 10.0.0.0/8 192.168.0.0/16
acl Safe_ports port 80 443 1025-65535
http_access deny !Safe_ports
include /etc/squid/dify_allow_private.conf
http_access deny to_private_networks
http_access allow local
http_access deny all
"""


def test_what_comes_after_the_rule_for_everything(tmp_path: Path) -> None:
    path = tmp_path / "squid.conf"
    path.write_text("http_access allow localhost\nhttp_access deny all\nhttp_access allow localnet\n")
    found = only(SquidRules(), Patient(model=path))
    assert found.where == f"{path}:2"
    assert "line 3 allows something, and comes too late" in found.seen
    path.write_text("http_access allow localnet\nhttp_access deny all\n")
    assert findings(SquidRules(), Patient(model=path)) == []


def test_the_order_of_squids_rules(tmp_path: Path) -> None:
    include = "include /etc/squid/dify_allow_private.conf\n"
    assert findings(SquidRules(), _patient(tmp_path, SQUID, "squid.conf")) == []
    assert only(SquidRules(), _patient(tmp_path, SQUID.replace(include, ""), "squid.conf")).where.endswith(":6")
    late = SQUID.replace(include, "") + include
    found = only(SquidRules(), _patient(tmp_path, late, "squid.conf.template"))
    assert "comes too late" in found.seen


def test_ports_that_squid_lets_through(tmp_path: Path) -> None:
    found = only(SquidRules(), _patient(tmp_path, SQUID.replace(" 1025-65535", ""), "squid.conf"))
    assert "8000" in found.seen
