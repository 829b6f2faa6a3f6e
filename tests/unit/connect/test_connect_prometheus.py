"""Prometheus's files, and where a check of it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from bident.client import Credentials
from bident.connect.neighbour import Hop, Wanted
from bident.connect.prometheus import Prometheus
from bident.connect.site import Address, Site
from bident.errors import ServeError
from tests.unit.connect.sites import NOBODY, answering, site

TENSOR_PAGE = 'nv_inference_request_success{model="iris"} 1\n'
TEXT_PAGE = "bident_text_models_loaded 1\n"


def parsed(site: Site, wanted: Wanted | None = None) -> dict[str, Any]:
    return {file.path: yaml.safe_load(file.text) for file in Prometheus().files(site, wanted or Wanted())}


def test_both_servers_are_scraped() -> None:
    config = parsed(site("iris", host="host.docker.internal"))["prometheus.yml"]
    jobs = {job["job_name"]: job for job in config["scrape_configs"]}
    assert jobs["bident-tensor"]["static_configs"] == [{"targets": ["host.docker.internal:8002"]}]
    assert jobs["bident-text"]["static_configs"] == [{"targets": ["host.docker.internal:9"]}]
    assert config["global"]["scrape_interval"] == "15s"
    assert set(config["rule_files"]) < set(parsed(site("iris")))


def test_only_the_servers_that_answer() -> None:
    assert [job["job_name"] for job in parsed(site())["prometheus.yml"]["scrape_configs"]] == ["bident-text"]
    with pytest.raises(ServeError, match="no server that answers has metrics"):
        parsed(site(text=None))


def test_a_key_is_asked_for_where_the_servers_want_one() -> None:
    asked = replace(site("iris"), metrics=Address(NOBODY, NOBODY, Credentials(api_key="secret")))
    assert "--set key-file=FILE" in Prometheus().steps(asked, Wanted())[0]
    assert "key-file" not in "".join(Prometheus().steps(asked, Wanted(options={"key-file": "/run/key"})))
    assert "secret" not in repr(asked)


def test_a_real_ollama_is_not_scraped() -> None:
    for version, jobs in (
        ({"version": "0.14.0"}, ["bident-tensor"]),
        ({"bident": "0.1.0"}, ["bident-tensor", "bident-text"]),
    ):
        with answering({"/api/version": version}) as url:
            config = parsed(site("iris", text=url))["prometheus.yml"]
        assert [job["job_name"] for job in config["scrape_configs"]] == jobs


def test_keys_certificates_and_pace() -> None:
    wanted = Wanted(options={"interval": "1m", "key-file": "/run/key", "ca-file": "/run/ca.pem"})
    config = parsed(site("iris", metrics="https://127.0.0.1:8002"), wanted)["prometheus.yml"]
    job = config["scrape_configs"][0]
    assert job["scheme"] == "https"
    assert job["authorization"] == {"credentials_file": "/run/key"}
    assert job["tls_config"] == {"ca_file": "/run/ca.pem"}
    assert config["global"]["scrape_interval"] == "1m"
    wanted = Wanted(options={"key-file": "/run/key", "text-key-file": "/run/other"})
    jobs = parsed(site("iris"), wanted)["prometheus.yml"]["scrape_configs"]
    assert [job["authorization"]["credentials_file"] for job in jobs] == ["/run/key", "/run/other"]
    for wrong in ("0s", "fast", "1.5s", "s", "15"):
        with pytest.raises(ServeError, match="whole number of s, m or h"):
            parsed(site("iris"), Wanted(options={"interval": wrong}))


def test_each_model_has_its_alarm() -> None:
    names = ["iris", 'odd "name"\\', "{{ x }}"]
    rules = parsed(site(*names))["bident-models.rules.yml"]["groups"][0]["rules"]
    assert len(rules) == 3
    assert 'model="odd \\"name\\"\\\\"' in rules[1]["expr"]
    assert "{{" not in rules[2]["annotations"]["summary"]
    chosen = parsed(site("iris", "other"), Wanted(("other",)))["bident-models.rules.yml"]["groups"][0]["rules"]
    assert [rule["annotations"]["summary"] for rule in chosen] == ["other is no longer served"]
    assert parsed(site())["bident-models.rules.yml"]["groups"][0]["rules"] == []


def hops(prometheus: dict[str, Any] | None, tensor: str = TENSOR_PAGE, text: str = TEXT_PAGE) -> list[Hop]:
    with answering({"/metrics": tensor}) as metrics, answering({"/metrics": text}) as texts:
        here = site("iris", metrics=metrics, text=texts)
        if prometheus is None:
            return list(Prometheus().check(here, Wanted(options={"prometheus": NOBODY})))
        with answering(prometheus) as url:
            return list(Prometheus().check(here, Wanted(options={"prometheus": url})))


def healthy(**changed: Any) -> dict[str, Any]:
    """What a Prometheus answers that works; ``changed`` are further facts of the text server's target."""
    names = ("bident-tensor", "bident-text")
    targets = [{"labels": {"job": name}, "health": "up", "scrapeUrl": f"http://{name}/metrics"} for name in names]
    targets[1].update(changed)
    rule = {"name": "BidentDown", "health": "ok", "state": "firing"}
    groups = [{"name": name, "rules": [rule]} for name in (*names, "bident-alarms")]
    return {
        "/api/v1/targets": {"data": {"activeTargets": targets}},
        "/api/v1/rules": {"data": {"groups": groups}},
    }


def test_all_works() -> None:
    tried = hops(healthy())
    assert [hop.works for hop in tried] == [True] * 6
    assert "alarms now: BidentDown" in tried[-1].seen


@pytest.mark.parametrize(
    ("prometheus", "count", "seen", "cure"),
    [
        (None, 3, "no server answers at http://127.0.0.1:9", "--set prometheus=URL"),
        ({"/api/v1/targets": {}, "/api/v1/rules": {}}, 3, "is no Prometheus", "--set prometheus"),
        ({"/api/v1/targets": {"data": {"activeTargets": ["x"]}}}, 3, "is no Prometheus", "--set prometheus"),
        ({}, 3, "/api/v1/targets?state=active answered 404", "--set prometheus"),
        (healthy(labels={"job": "other"}), 5, "it has no job bident-text", "--write DIR"),
        (healthy(health="down", lastError="connection refused"), 5, "connection refused", "--host host.docker"),
        (healthy(health="unknown"), 5, "has not asked", "try again"),
        ({**healthy(), "/api/v1/rules": {"data": {"groups": []}}}, 6, "it has no rules bident-alarms", "rule_files"),
    ],
)
def test_the_first_hop_that_fails(prometheus: dict[str, Any] | None, count: int, seen: str, cure: str) -> None:
    tried = hops(prometheus)
    assert [hop.works for hop in tried] == [True] * (count - 1) + [False]
    assert seen in tried[-1].seen
    assert cure in tried[-1].cure


def test_another_server_in_the_place_of_ours() -> None:
    tried = hops(healthy(), text="404 page not found")
    assert [hop.works for hop in tried] == [True, False]
    assert "without Bident's figures" in tried[-1].seen
    assert "a real Ollama has no figures" in tried[-1].cure
