"""``bident export compose``: what the settings say, in the words of the compose specification."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from bident.cli import main
from bident.cli.serve import DEFAULTS
from bident.errors import SettingsError
from bident.settings import given_texts, parse_both_args, parse_tensor_args, parse_text_args
from bident.ship.compose import NETWORKS, TRITON_IMAGE, Site, Wish, compose


def exported(*flags: str, wish: Wish | None = None, folder: Path = Path()) -> dict[str, Any]:
    tensor, text = parse_both_args(flags, {}, None, DEFAULTS)
    given, text_given = given_texts(flags, {})
    tree: dict[str, Any] = yaml.safe_load(compose(Site(tensor, text, given, text_given, folder), wish or Wish()))
    return tree


def is_valid(page: str, folder: Path) -> None:
    """Asks the schema of the compose specification."""
    (folder / "page.yml").write_text(page)
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "page.yml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("engine", ["bident", "triton"])
def test_it_is_what_the_specification_allows(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["export", "compose", "--engine", engine, "--text-keep-alive=1h", "--load-model=a", *EXPLICIT])
    assert not ended.value.code
    page = capsys.readouterr().out
    is_valid(page, tmp_path)
    assert "--text-keep-alive" not in page
    assert "--keep-alive=1h" in page


EXPLICIT = ("--model-control-mode=explicit",)


def test_bidents_own_servers_by_default() -> None:
    services = exported()["services"]
    tensor, text = services["tensor"], services["text"]
    assert tensor["image"] == text["image"]
    assert tensor["command"][:3] == ["serve", "tensor", "--model-repository=/models"]
    assert "--http-address=0.0.0.0" in tensor["command"]
    assert tensor["volumes"] == ["./model_repository:/models:ro", "cache:/cache"]
    assert tensor["ports"] == ["127.0.0.1:8000:8000", "127.0.0.1:8001:8001", "127.0.0.1:8002:8002"]
    assert text["ports"] == ["127.0.0.1:11434:11434"]
    assert tensor["deploy"] == {"resources": {"limits": {"memory": "10g"}}}
    assert tensor["shm_size"] == "2gb"


def test_the_servers_take_what_they_are_told() -> None:
    services = exported("--api-key-file=keys", "--text-keep-alive=1h", "--strict-readiness=false")["services"]
    tensor = parse_tensor_args(services["tensor"]["command"][2:], {})
    text = parse_text_args(services["text"]["command"][2:], {})
    assert (tensor.http_address, tensor.http_port, tensor.strict_readiness) == ("0.0.0.0", 8000, False)
    assert (text.host.host, text.port, text.keep_alive) == ("0.0.0.0", 11434, "1h")


def test_three_networks_as_in_the_stack_around() -> None:
    tree = exported()
    assert tree["networks"] == {
        "litellm_net": {"external": True, "name": "litellm_default"},
        "dify_net": {"external": True, "name": "docker_default"},
    }
    for service in tree["services"].values():
        assert service["networks"] == ["default", "litellm_net", "dify_net"]
    assert NETWORKS == ("litellm_default", "docker_default")


def test_without_other_networks_and_text() -> None:
    tree = exported(wish=Wish(networks=(), text=False))
    assert "networks" not in tree
    assert "networks" not in tree["services"]["tensor"]
    assert list(tree["services"]) == ["tensor"]


def test_settings_go_along_and_addresses_stay_outside() -> None:
    flags = ["--http-port=9000", "--http-address=0.0.0.0", "--insecure", *EXPLICIT, "--load-model=a", "--load-model=b"]
    tensor = exported(*flags, "--log-verbose=1", "--log-file=x.log")["services"]["tensor"]
    assert tensor["ports"][0] == "9000:8000"
    assert [word for word in tensor["command"] if "load-model" in word] == ["--load-model=a", "--load-model=b"]
    assert "--http-port=8000" in tensor["command"]
    assert "--log-verbose=1" in tensor["command"]
    assert not [word for word in tensor["command"] if "log-file" in word]


def test_closed_doors_are_not_published() -> None:
    tensor = exported("--allow-grpc=false", "--allow-metrics=false")["services"]["tensor"]
    assert tensor["ports"] == ["127.0.0.1:8000:8000"]
    assert "--allow-grpc=false" in tensor["command"]
    assert "--grpc-port=8001" not in tensor["command"]


def test_files_are_mounted_where_they_are_named() -> None:
    flags = ["--api-key-file=secrets/keys", "--grpc-use-ssl=true", "--grpc-server-cert=/tls/a.pem"]
    tensor = exported(*flags, "--grpc-server-key=/tls/b/a.pem")["services"]["tensor"]
    assert "--api-key-file=/run/bident/api-key-file" in tensor["command"]
    assert "--insecure" not in tensor["command"]
    assert tensor["volumes"][2:] == [
        "/tls/a.pem:/run/bident/grpc-server-cert.pem:ro",
        "/tls/b/a.pem:/run/bident/grpc-server-key.pem:ro",
        "./secrets/keys:/run/bident/api-key-file:ro",
    ]


def test_paths_are_relative_to_the_files_place() -> None:
    tensor = exported(folder=Path("deploy"))["services"]["tensor"]
    assert tensor["volumes"][0] == "../model_repository:/models:ro"


def test_health_is_asked_where_anybody_may_ask() -> None:
    def probe(*flags: str) -> str:
        return str(exported(*flags)["services"]["tensor"]["healthcheck"]["test"][-1])

    assert "http://127.0.0.1:8000/v2/health/ready" in probe()
    assert "('127.0.0.1', 8000)" in probe("--http-restricted-api=health:key=word")
    assert "('127.0.0.1', 8001)" in probe("--allow-http=false")
    for line in (probe(), probe("--allow-http=false")):
        compile(line, "probe", "exec")


def test_nvidias_server_is_told_what_it_knows() -> None:
    flags = ["--workers=2", "--log-verbose=1", "--http-idle-timeout-secs=5"]
    services = exported(*flags, wish=Wish(engine="triton"))["services"]
    tensor = services["tensor"]
    assert tensor["image"] == TRITON_IMAGE
    assert tensor["command"][:2] == ["tritonserver", "--model-repository=/models"]
    assert "--log-verbose=1" in tensor["command"]
    ours = ("--workers", "--http-idle", "--insecure", "--model-cache")
    assert not [word for word in tensor["command"] if word.startswith(ours)]
    assert services["text"]["image"] != TRITON_IMAGE


def test_nvidias_server_without_the_protection_asked_for_is_refused() -> None:
    with pytest.raises(SettingsError, match="--api-key-file: NVIDIA's server has no such flag"):
        exported("--api-key-file=keys", wish=Wish(engine="triton"))


def test_a_protection_that_is_off_is_none_that_is_missed() -> None:
    tensor = exported("--http-use-ssl=false", wish=Wish(engine="triton"))["services"]["tensor"]
    assert not [word for word in tensor["command"] if "ssl" in word]


def test_a_path_with_a_colon_is_a_path(tmp_path: Path) -> None:
    page = compose(Site(*parse_both_args(["--model-repository=/a:b"], {}), {}, {}), Wish())
    is_valid(page, tmp_path)
    (volume, _) = yaml.safe_load(page)["services"]["tensor"]["volumes"]
    assert volume == {"type": "bind", "source": "/a:b", "target": "/models", "read_only": True}


def test_dollars_are_no_variables() -> None:
    assert "--id=a$$b" in exported("--id=a$b")["services"]["tensor"]["command"]


def test_it_is_written_whole_and_over_nothing_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["export", "compose", "--write", "deploy"]
    codes = []
    for more in ([], [], ["--memory=4g"], ["--memory=4g", "--force"], ["--memory=much"], ["--network=a b"]):
        with pytest.raises(SystemExit) as ended:
            main([*words, *more])
        codes.append(ended.value.code or 0)
    assert codes == [0, 0, 1, 0, 2, 2]
    said = capsys.readouterr()
    assert "Wrote deploy/docker-compose.yml" in said.out
    assert "First: docker build -f Containerfile -t bident:" in said.err
    assert "The networks litellm_default and docker_default must be there (docker network ls)" in said.err
    assert "There is no model repository at model_repository yet" in said.err
    assert "there already with other contents; --force" in said.err
    assert yaml.safe_load((tmp_path / "deploy" / "docker-compose.yml").read_text())["services"]["tensor"]["deploy"] == {
        "resources": {"limits": {"memory": "4g"}}
    }
