"""Prometheus: a configuration that scrapes both servers, rules, and their tests."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files as resources
from typing import Any
from urllib.parse import urlsplit

from bident.client import Client, TextClient
from bident.connect.neighbour import File, Hop, Neighbour, Wanted, until_failure
from bident.connect.prometheus.missing import TENSOR_JOB, TEXT_JOB, missing_rules, missing_tests
from bident.connect.prometheus.server import DEFAULT_URL, PrometheusServer
from bident.connect.site import Address, Site
from bident.errors import Code, ServeError, invalid_arg
from bident.yaml import to_yaml

_PATH = "/metrics"
_RULES, _TESTS = "bident.rules.yml", "bident.test.yml"
_MODELS, _MODELS_TESTS = "bident-models.rules.yml", "bident-models.test.yml"
_MISSING = "# An alarm for each model that was served when 'bident connect prometheus' wrote this.\n"
_KEYED = "The servers want an API key: make these files with --set key-file=FILE, a file with the key alone in it."
_DURATION_ENDS = ("s", "m", "h")


class Prometheus(Neighbour):
    """Watches both servers."""

    name = "prometheus"
    summary = "scrapes both servers: configuration, recorded series, alarms and their tests"
    options = {  # noqa: RUF012
        "interval": "how often the servers are asked, as 15s (that is the default)",
        "ca-file": "the PEM file of the authority that signed the servers' certificates, as Prometheus finds it",
        "key-file": "a file with the servers' API key, as Prometheus finds it, where they want one",
        "text-key-file": "the same for the text server, where its key is another one",
        "prometheus": f"where Prometheus answers, for --check; {DEFAULT_URL} without it",
    }

    def files(self, site: Site, wanted: Wanted) -> list[File]:
        here = resources(__package__)
        models = [model.name for model in site.models if wanted.includes(model.name)]
        return [
            File("prometheus.yml", _configuration(site, wanted), "the configuration of a Prometheus of its own"),
            File(_RULES, (here / _RULES).read_text("utf-8"), "recorded series and alarms, in the folder of the above"),
            File(
                _MODELS,
                _MISSING + to_yaml(missing_rules(models)),
                "alarms for the models that are served now, if one is missing",
            ),
            File(_TESTS, (here / _TESTS).read_text("utf-8"), f"tests of {_RULES}, for promtool"),
            File(_MODELS_TESTS, to_yaml(missing_tests(models, _MODELS)), f"tests of {_MODELS}"),
        ]

    def steps(self, site: Site, wanted: Wanted) -> list[str]:
        keyed = any(address.wants_key for _, address in _jobs(site))
        return [
            *([_KEYED] if keyed and not wanted.option("key-file") else []),
            "promtool check config prometheus.yml && promtool test rules bident.test.yml bident-models.test.yml",
            "prometheus --config.file=prometheus.yml --web.listen-address=127.0.0.1:9090",
            "A Prometheus that runs already: copy the jobs and rule_files into its configuration, the rules beside it.",
            "bident connect prometheus --check",
        ]

    def check(self, site: Site, wanted: Wanted) -> Iterator[Hop]:
        return until_failure(_hops(site, wanted))


def _hops(site: Site, wanted: Wanted) -> Iterator[Hop]:
    yield from _pages(site)
    server = PrometheusServer(wanted.option("prometheus", DEFAULT_URL))
    try:
        targets, groups = server.targets(), server.groups()
    except ServeError as error:
        cure = "start it (the steps say how), or say where it is: --set prometheus=URL"
        yield Hop("here -> Prometheus", False, error.message, cure)
        return
    yield Hop("here -> Prometheus", True, f"answers at {server.url}")
    for job, address in _jobs(site):
        yield _target_hop(job, address, targets)
    yield _rules_hop(groups)


def _jobs(site: Site) -> list[tuple[str, Address]]:
    """The servers to scrape, and the names of their jobs."""
    text = None if site.text is None or _has_no_figures(site.text) else site.text
    jobs = ((TENSOR_JOB, site.metrics), (TEXT_JOB, text))
    return [(job, address) for job, address in jobs if address is not None]


def _has_no_figures(text: Address) -> bool:
    """Whether a real Ollama is in the text server's place."""
    return TextClient(text.here, credentials=text.credentials).is_real_ollama()


def _configuration(site: Site, wanted: Wanted) -> str:
    jobs = _jobs(site)
    if not jobs:
        raise ServeError(Code.UNAVAILABLE, "no server that answers has metrics to scrape")
    interval = wanted.option("interval", "15s")
    number = interval[:-1]
    if not (interval.endswith(_DURATION_ENDS) and number.isascii() and number.isdecimal() and number.strip("0")):
        raise invalid_arg(f"--set interval={interval}: it is a whole number of s, m or h, as 15s")
    document = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [_RULES, _MODELS],
        "scrape_configs": [_job(job, address, wanted) for job, address in jobs],
    }
    return "# Prometheus scrapes both engines of Bident. Made by 'bident connect prometheus'.\n" + to_yaml(document)


def _job(job: str, address: Address, wanted: Wanted) -> dict[str, Any]:
    parts = urlsplit(address.theirs)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    key_file, ca_file = wanted.option("key-file"), wanted.option("ca-file")
    if job == TEXT_JOB:
        key_file = wanted.option("text-key-file", key_file)
    return {
        "job_name": job,
        "scheme": parts.scheme,
        "metrics_path": parts.path + _PATH,
        **({"authorization": {"credentials_file": key_file}} if key_file else {}),
        **({"tls_config": {"ca_file": ca_file}} if ca_file else {}),
        "static_configs": [{"targets": [f"{host}:{port}"]}],
    }


def _pages(site: Site) -> Iterator[Hop]:
    """Whether the servers show their figures to this machine."""
    servers = (("tensor", site.metrics, Client, "nv_inference"), ("text", site.text, TextClient, "bident_text_"))
    for server, address, kind, known in servers:
        if address is None:
            continue
        name, client = f"here -> {server} server", kind(address.here, credentials=address.credentials)
        cure = "start the server with metrics (--allow-metrics=true), or say where they are: BIDENT_METRICS_PORT"
        try:
            reply = client.exchange("GET", _PATH)
        except ServeError as error:
            yield Hop(name, False, error.message.partition(";")[0], cure)
            continue
        if reply.status != 200 or known.encode() not in reply.body:
            seen = f"{client.url}{_PATH} answered {reply.status} without Bident's figures"
            yield Hop(name, False, seen, _stranger_cure(reply.status))
            continue
        lines = sum(not line.startswith(b"#") for line in reply.body.splitlines())
        yield Hop(name, True, f"{lines} series at {client.url}{_PATH}")


def _stranger_cure(status: int) -> str:
    if status == 401:
        return "bident --api-key KEY connect ..., and --set key-file=FILE for Prometheus"
    return "another server has this address (a real Ollama has no figures); say where yours is: --url, --text-url"


def _target_hop(job: str, address: Address, targets: list[dict[str, Any]]) -> Hop:
    """Whether Prometheus reaches the server of ``job``."""
    name = f"Prometheus -> {job.removeprefix('bident-')} server"
    mine = [target for target in targets if job == _job_of(target)]
    if not mine:
        return Hop(name, False, f"it has no job {job}", "give it the files: bident connect prometheus --write DIR")
    for target in mine:
        if target.get("health") == "up":
            return Hop(name, True, f"scrapes {target.get('scrapeUrl')}")
    target = mine[0]
    if target.get("health") == "unknown":
        return Hop(name, False, f"has not asked {target.get('scrapeUrl')} yet", "try again in an interval")
    return Hop(
        name,
        False,
        f"{target.get('scrapeUrl')}: {target.get('lastError')}",
        f"from where Prometheus runs, {address.theirs} must lead here: a container needs --host host.docker.internal "
        "and a server that listens to more than loopback",
    )


def _job_of(target: dict[str, Any]) -> object:
    labels = target.get("labels")
    return labels.get("job") if isinstance(labels, dict) else None


def _rules_hop(groups: list[dict[str, Any]]) -> Hop:
    names = {str(group.get("name")) for group in groups}
    wanted = {"bident-tensor", "bident-text", "bident-alarms"}
    if wanted - names:
        seen = f"it has no rules {', '.join(sorted(wanted - names))}"
        return Hop("rules", False, seen, f"name {_RULES} in rule_files, and reload Prometheus (SIGHUP)")
    ours = [rule for group in groups if group.get("name") in wanted for rule in _rules_of(group)]
    failed = [rule for rule in ours if rule.get("health") == "err"]
    if failed:
        return Hop("rules", False, f"{failed[0].get('name')}: {failed[0].get('lastError')}", "write the files anew")
    firing = [str(rule.get("name")) for rule in ours if rule.get("state") == "firing"]
    return Hop("rules", True, f"{len(ours)} rules; alarms now: {', '.join(firing) or 'none'}")


def _rules_of(group: dict[str, Any]) -> list[dict[str, Any]]:
    rules = group.get("rules")
    return rules if isinstance(rules, list) else []
