"""Settings: one table, four sources, tritonserver's way of reading a command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from bident.errors import Code, SettingsError
from bident.settings import TABLE, Setting, TensorSettings, canonical_flags, parse_tensor_args
from bident.settings.values import Api, Named, RateLimitResource, RestrictedApi

EXPLICIT = ["--model-control-mode=explicit"]
EXAMPLES = {
    "<boolean>": ("on", True),
    "<integer>": ("1025", 1025),
    "<number>": ("2.5", 2.5),
    "<string>": ("word", "word"),
    "<path>": ("some/where", Path("some/where")),
    "<setting>=<value>": ("a=b", {"a": "b"}),
    "[<name>,]<setting>=<value>": ("python,a=b", {"python": {"a": "b"}}),
    "<name>,<setting>=<value>": ("local,size=7", {"local": {"size": "7"}}),
    "[<mode>,]<setting>=<value>": ("triton,file=f", (Named("triton", "file", "f"),)),
    "<apis>:<header>=<value>": ("health:k=v", (RestrictedApi(frozenset({Api.HEALTH}), "k", "v"),)),
    "<name>:<count>[:<device>]": ("R:3", (RateLimitResource("R", 3, None),)),
    "<device>:<bytes>": ("0:64", {0: 64}),
    "<device>:<fraction>": ("0:0.5", {0: 0.5}),
}


def parse(*argv: str, **environ: str) -> TensorSettings:
    return parse_tensor_args(argv, environ)


def example(row: Setting) -> tuple[str, object]:
    """A value of the row's kind that is not its default, and what it should become."""
    if row.kind.metavar not in EXAMPLES:
        word = row.kind.metavar.split("|")[-1]
        return word, word
    if row.name == "trace_level":
        return "tensors", ("TENSORS",)
    text, value = EXAMPLES[row.kind.metavar]
    if row.default is True:
        return "off", False
    if row.repeatable and not isinstance(value, (dict, tuple)):
        return text, (value,)
    return text, value


def needed(row: Setting) -> list[str]:
    if row.name == "load_model":
        return EXPLICIT
    if row.name.endswith("_address"):
        return ["--insecure"]
    door, _, what = row.name.partition("_")
    files = [f"--{door}-{file}={file}" for file in ("server-cert", "server-key", "root-cert")]
    files = [flag for flag in files if flag.partition("=")[0] != row.flag]
    if what.startswith("use_ssl"):
        return files
    return [f"--{door}-use-ssl=1", *files] if what.endswith(("_cert", "_key")) else []


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_setting_from_every_source(row: Setting, tmp_path: Path) -> None:
    text, value = example(row)
    ways = [[row.flag]] if not row.takes_value else [[f"{row.flag}={text}"], [row.flag, text]]
    if row.name != "config_file":
        for way in ways:
            assert getattr(parse(*needed(row), *way), row.name) == value
        assert getattr(parse(*needed(row), **{row.environment: text}), row.name) == value
        path = tmp_path / "bident.toml"
        path.write_text(f"[tensor]\n{row.key} = '{text}'\n", encoding="utf-8")
        assert getattr(parse_tensor_args(needed(row), {}, path), row.name) == value
    if row.name not in ("metrics_address", "model_cache_directory"):  # these follow other things
        assert getattr(parse(), row.name) == row.default


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("ON", True), ("1", True), ("False", False), ("off", False), ("0", False)],
)
def test_booleans_as_tritonserver_spells_them(text: str, value: bool) -> None:
    assert parse(f"--exit-on-error={text}").exit_on_error is value


def test_precedence_is_flag_environment_file_default(tmp_path: Path) -> None:
    path = tmp_path / "bident.toml"
    path.write_text("[tensor]\nhttp-port = 1\nmetrics_port = 2\nlog-verbose = 3\nlog-info = false\n", encoding="utf-8")
    environ = {"BIDENT_HTTP_PORT": "11", "BIDENT_METRICS_PORT": "12"}
    settings = parse_tensor_args(["--http-port=21"], environ, path)
    assert (settings.http_port, settings.metrics_port, settings.log_verbose) == (21, 12, 3)
    assert settings.log_info is False
    assert settings.log_error is True


def test_repeatable_settings_add_up_within_a_source_and_replace_across(tmp_path: Path) -> None:
    path = tmp_path / "bident.toml"
    path.write_text("[tensor]\nmodel-repository = ['x', 'y']\nbackend-config = ['fil,a=1', 'b=2']\n", encoding="utf-8")
    settings = parse_tensor_args([], {"BIDENT_MODEL_REPOSITORY": "p;q"}, path)
    assert settings.model_repository == (Path("p"), Path("q"))
    assert settings.backend_config == {"fil": {"a": "1"}, "": {"b": "2"}}
    settings = parse_tensor_args(["--model-store", "s", "--model-repository=t"], {}, path)
    assert settings.model_repository == (Path("s"), Path("t"))


def test_a_value_may_hold_commas_and_equals_signs() -> None:
    settings = parse("--backend-config=python,shm=a,b=c", "--backend-config=x=1,2")
    assert settings.backend_config == {"python": {"shm": "a,b=c"}, "": {"x": "1,2"}}


def test_the_last_of_a_repeated_single_setting_wins() -> None:
    assert parse("--http-port=1", "--http-port", "2").http_port == 2


def test_an_unambiguous_start_of_a_flag_is_enough() -> None:
    assert parse("--model-repo", "m").model_repository == (Path("m"),)
    with pytest.raises(SettingsError, match=r"'--http-m' is ambiguous; it may be --http-max-connections or"):
        parse("--http-m=1")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--htp-port=1"], "unrecognized option '--htp-port'; did you mean '--http-port'?"),
        (["--"], "Unexpected argument: --"),
        (["stray"], "Unexpected argument: stray"),
        (["-p", "1"], "Unexpected argument: -p"),
        (["--http-port"], "option '--http-port' requires an argument: --http-port=<integer>"),
        (["--id", "--http-port=1"], "option '--id' requires an argument"),
        (["--disable-auto-complete-config=false"], "doesn't allow an argument"),
        (["--http-port=abc"], 'Bad option: "--http-port". Invalid option value. Got abc; expected a whole number'),
        (["--http-port=65536"], "at least 0 and at most 65535"),
        (["--exit-on-error", "maybe"], "invalid value for bool option: maybe; expected true, on or 1"),
        (["--model-control-mode=auto"], "Got auto; expected none or poll or explicit"),
        (["--backend-config=a,b"], "option format is '<name>,<setting>=<value>'"),
        (["--backend-config=,a=b"], "option format is '<name>,<setting>=<value>'"),
        (["--cache-config=size=1"], "the name is missing"),
        (["--metrics-config=x"], "option format is <setting>=<value>. Got x"),
        (["--trace-config=level=loud"], "Got LOUD; expected OFF or TIMESTAMPS"),
        (["--http-restricted-api=helth:k=v"], "unknown restricted api 'helth'"),
        (["--http-header-forward-pattern=("], "Invalid regex pattern"),
        (["--grpc-header-forward-pattern=(a+)+"], "can take very long"),
        (["--http-restricted-api=health:k=v", "--http-restricted-api=trace,health:k=w"], "multiple config groups"),
        (["--model-repository="], "the path is empty"),
        (["--http-idle-timeout-secs=-1"], "expected a number of at least 0"),
        (["--http-idle-timeout-secs=nan"], "expected a number of at least 0"),
        (["--load-model=m"], "requires setting '--model-control-mode=explicit'"),
        ([*EXPLICIT, "--load-model=*", "--load-model=m"], "must be the ONLY startup model"),
        (["--cache-config=local,size=1", "--response-cache-byte-size=1"], "Incompatible flags"),
        (["--metrics-port=8000"], "HTTP requests and metrics requests at the same address and port 127.0.0.1:8000"),
    ],
)
def test_what_is_wrong_is_refused_with_the_cure(argv: list[str], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(*argv)
    assert message in caught.value.message
    assert caught.value.code is Code.INVALID_ARG


def test_a_bad_value_names_its_source(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match='"BIDENT_HTTP_PORT"'):
        parse(BIDENT_HTTP_PORT="x")
    path = tmp_path / "bident.toml"
    path.write_text("[tensor]\nhttp-port = 'x'\n", encoding="utf-8")
    with pytest.raises(SettingsError, match=r'"http-port in .*bident\.toml"'):
        parse_tensor_args([], {}, path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tensor]\nhttp-prot = 1\n", "unknown setting 'http-prot' in [tensor]; did you mean 'http-port'?"),
        ("http-port = 1\n", "'http-port' must stand in a [tensor] table"),
        ("[tensor]\nhttp-port = [1, 2]\n", "must be one value"),
        ("[tensor]\nload-model = []\n", "must be a value, or a list of them"),
        ("[tensor\n", "is not TOML"),
    ],
)
def test_a_bad_file_is_refused_with_the_cure(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bident.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        parse_tensor_args([], {}, path)
    assert message in caught.value.message
    assert str(path) in caught.value.message


def test_the_config_file_can_be_named_by_flag_and_by_environment(tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    path.write_text("[tensor]\nhttp-port = 5\n[text]\nwhatever = 1\n", encoding="utf-8")
    assert parse(f"--config-file={path}").http_port == 5
    assert parse(BIDENT_CONFIG_FILE=str(path)).http_port == 5
    with pytest.raises(SettingsError, match="cannot read the config file"):
        parse("--config-file=nowhere.toml")


def test_a_command_may_prefer_other_defaults() -> None:
    defaults = {"exit_on_error": "false", "http_thread_count": "9"}
    assert parse_tensor_args([], {}, None, defaults).exit_on_error is False
    assert parse_tensor_args([], {"BIDENT_EXIT_ON_ERROR": "true"}, None, defaults).exit_on_error is True
    assert parse_tensor_args(["--exit-on-error=true"], {}, None, defaults).exit_on_error is True
    # Nobody asked for it, so nobody is told that it does nothing.
    assert parse_tensor_args([], {}, None, defaults).notices == ()


def test_flags_are_one_word_each_however_they_were_written() -> None:
    written = ["--http-port", "1", "--model-repo=a", "--disable-auto-complete-config", "--model-store", "b c"]
    canonical = ["--http-port=1", "--model-repository=a", "--model-repository=b c", "--disable-auto-complete-config"]
    assert canonical_flags(written) == canonical
    assert canonical_flags(canonical) == canonical


def test_empty_environment_variables_count_as_unset() -> None:
    assert parse(BIDENT_HTTP_PORT="").http_port == 8000
