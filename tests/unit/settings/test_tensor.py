"""The table of settings and its defaults."""

from __future__ import annotations

import re
from pathlib import Path

import bident
from bident.settings import TABLE, TensorSettings, parse_tensor_args


def parse(*argv: str) -> TensorSettings:
    return parse_tensor_args(argv, {})


def test_the_table_names_everything_once_and_explains_it() -> None:
    flags = [flag for row in TABLE for flag in (row.flag, *row.aliases)]
    assert len(flags) == len(set(flags))
    assert len({row.environment for row in TABLE}) == len(TABLE)
    for row in TABLE:
        assert row.help.endswith("."), row.flag
        assert not row.effect or row.effect.startswith(("none: ", "none yet: ")), row.flag


def test_defaults_are_tritons_but_for_loopback() -> None:
    settings = parse()
    assert (settings.http_port, settings.grpc_port, settings.metrics_port) == (8000, 8001, 8002)
    assert (settings.http_address, settings.grpc_address, settings.metrics_address) == ("127.0.0.1",) * 3
    assert settings.server_id == "triton"
    assert (settings.exit_timeout_secs, settings.exit_on_error, settings.strict_readiness) == (30, True, True)
    assert settings.http_max_input_size == 64 * 1024 * 1024
    assert not settings.notices


def test_mutable_defaults_are_not_shared() -> None:
    parse().backend_config["x"] = {}
    assert parse().backend_config == {}


def test_a_setting_says_that_it_has_no_effect_exactly_when_the_server_does_not_read_it() -> None:
    package = Path(bident.__file__).parent
    sources = [path for path in package.rglob("*.py") if not {"settings", "cli"} & set(path.relative_to(package).parts)]
    read = {name for path in sources for name in re.findall(r"settings\.(\w+)", path.read_text(encoding="utf-8"))}
    for row in TABLE:
        if row.name not in {"config_file", "engine"} and not row.replacement:  # those the command reads
            assert bool(row.effect) == (row.name not in read), row.flag
