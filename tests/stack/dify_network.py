"""Dify's network, played with network namespaces: its API, its SSRF proxy (Debian's Squid) and a tensor server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.servers import Server, bident_command

API, PROXY, SERVER = "172.31.77.2", "172.31.77.3", "172.31.77.4"
NAME = "tensor.infer.local"
"""The server's, where Squid looks names up; the API need not know it."""
PORT, PROXY_PORT = 21380, 3128
KEY = "a-key-of-the-test"
_SECONDS = 30.0

_ACLS = """
acl client_localnet src 10.0.0.0/8 100.64.0.0/10 169.254.0.0/16 172.16.0.0/12 192.168.0.0/16 fc00::/7 fe80::/10
acl to_private_networks dst 0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12
acl to_private_networks dst 192.168.0.0/16 224.0.0.0/4 240.0.0.0/4 ::1/128 fc00::/7 fe80::/10
acl allowed_domains dstdomain .marketplace.dify.ai
acl localnet src 10.0.0.0/8 100.64.0.0/10 169.254.0.0/16 172.16.0.0/12 192.168.0.0/16 fc00::/7 fe80::/10
acl SSL_ports port 443
acl Safe_ports port 80 21 443 70 210 1025-65535 280 488 591 777
"""
NEWER = """
http_access deny !Safe_ports
http_access deny CONNECT !SSL_ports
http_access allow localhost manager
http_access deny manager
{allowed}
http_access deny to_private_networks
http_access allow allowed_domains
http_access allow client_localnet
http_access allow localhost
http_access deny all
"""
"""The order of Dify's rules from 1.15 on; ``allowed`` is what its entry point writes."""
OLDER = """
http_access deny !Safe_ports
http_access deny CONNECT !SSL_ports
http_access allow localhost manager
http_access deny manager
http_access allow localhost
{allowed}
http_access deny all
"""
"""The same up to 1.14; ``allowed`` are the files in conf.d, without those that Ubuntu's package has there."""
_SETTINGS = """
http_port {address}:{port}
hosts_file {folder}/hosts
dns_nameservers 127.0.0.1
dns_retransmit_interval 1 second
dns_timeout 1 second
pid_filename {folder}/squid.pid
cache_log {folder}/cache.log
access_log stdio:{folder}/access.log
coredump_dir {folder}
visible_hostname ssrf_proxy
cache_effective_user proxy
shutdown_lifetime 0 seconds
cache deny all
"""


def entry_point(variables: Mapping[str, str]) -> str:
    """The rules that Dify's entry point makes of its variables, in their order: one access list, one rule for each."""
    rules = []
    for variable, name, kind in (
        ("SSRF_PROXY_ALLOW_PRIVATE_IPS", "dify_allowed_private_networks", "dst"),
        ("SSRF_PROXY_ALLOW_PRIVATE_DOMAINS", "dify_allowed_private_domains", "dstdomain"),
    ):
        values = variables.get(variable, "").replace(",", " ").strip()
        if values:
            rules += [f"acl {name} {kind} {values}", f"http_access allow client_localnet {name}"]
    return "\n".join(rules)


class Network:
    """Three namespaces on one bridge, which is in the proxy's: nothing of it is seen outside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._names = {role: f"bident-{os.getpid()}-{role}" for role in ("api", "proxy", "server")}

    def inside(self, role: str) -> tuple[str, ...]:
        """What goes before a command that is to run in the namespace of ``role``."""
        return ("ip", "netns", "exec", self._names[role])

    def build(self) -> None:
        for name in self._names.values():
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        proxy = self._names["proxy"]
        _ip("-n", proxy, "link", "add", "bridge", "type", "bridge")
        _ip("-n", proxy, "addr", "add", f"{PROXY}/24", "dev", "bridge")
        _ip("-n", proxy, "link", "set", "bridge", "up")
        for role, address in (("api", API), ("server", SERVER)):
            name = self._names[role]
            _ip("-n", proxy, "link", "add", role, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", proxy, "link", "set", role, "master", "bridge", "up")
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")

    def destroy(self) -> None:
        for name in self._names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    @contextmanager
    def squid(self, order: str, allowed: str) -> Iterator[str]:
        """Squid with Dify's rules in ``order``; gives its address."""
        # Not below pytest's folder, which only root may enter: Squid gives root up.
        with tempfile.TemporaryDirectory(prefix="bident-squid-") as name:
            folder = Path(name)
            shutil.chown(folder, "proxy")
            folder.chmod(0o755)
            (folder / "hosts").write_text(f"{SERVER} {NAME}\n")
            settings = _SETTINGS.format(address=PROXY, port=PROXY_PORT, folder=folder)
            (folder / "squid.conf").write_text(settings + _ACLS + order.format(allowed=allowed))
            url = f"http://{PROXY}:{PROXY_PORT}"
            with _Inside(self, "proxy", ["squid", "-N", "-f", folder / "squid.conf"], url):
                yield url

    @contextmanager
    def server(self, repository: Path) -> Iterator[str]:
        """A tensor server that listens to the network and wants ``KEY``; gives its address."""
        keys = self.folder / "api_keys"
        keys.touch(0o600)
        keys.write_text(KEY)
        command = [bident_command(), "serve", "tensor", f"--model-repository={repository}", f"--api-key-file={keys}"]
        ports = [f"--http-port={PORT}", "--allow-grpc=false", "--allow-metrics=false", f"--http-address={SERVER}"]
        url = f"http://{SERVER}:{PORT}"
        with _Inside(self, "server", [*command, *ports], f"{url}/v2/health/ready", "--fail"):
            yield url

    @contextmanager
    def sandbox(self) -> Iterator[str]:
        """Dify's sandbox beside its API."""
        command = [*self.inside("api"), sys.executable, "-m", "tests.stack.dify_site"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
            process.communicate(timeout=10)

    def curl(self, url: str, *flags: str) -> subprocess.CompletedProcess[str]:
        """What curl says in the API's namespace; it retries nothing, and waits a little for a connection."""
        command = [*self.inside("api"), "curl", "--silent", "--show-error", "--max-time", "10", *flags, url]
        return subprocess.run(command, capture_output=True, text=True, check=False)


class _Inside(Server):
    """``command`` in the namespace of ``role``, ready once ``url`` answers the API's; ``flags`` are curl's."""

    def __init__(self, network: Network, role: str, command: Sequence[object], url: str, *flags: str) -> None:
        log = network.folder / f"{role}.log"
        super().__init__([*network.inside(role), *command], 0, log, deadline_seconds=_SECONDS)
        self._answers = partial(network.curl, url, *flags)

    def _is_ready(self) -> bool:
        return self._answers().returncode == 0


@contextmanager
def network(folder: Path) -> Iterator[Network]:
    """The namespaces, gone afterwards whatever happens."""
    made = Network(folder)
    with ExitStack() as stack:
        stack.callback(made.destroy)
        made.build()
        yield made


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr.strip()} (network namespaces need root)"
