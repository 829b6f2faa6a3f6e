"""``--model-namespacing`` and ``--model-config-name``: which of several models, and which of several configs,
is served.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from asking import Asker, tensor
from model_folders import write_identity, write_model, x_to_y
from python_folders import ECHO, write_python
from serving import Launch

QUESTION = tensor("X", "FP32", [1], [1])
STEP = (
    'step { model_name: "same" model_version: -1 input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" } }'
)
ENSEMBLE = f'platform: "ensemble"\n{x_to_y()}ensemble_scheduling {{ {STEP} }}\n'


@pytest.fixture
def namespaces(tmp_path: Path) -> list[Path]:
    """Two repositories: a model ``same`` in both, of which one doubles, and an ensemble of it and another model."""
    double = ECHO.replace('pb_utils.Tensor("Y", array)', 'pb_utils.Tensor("Y", array * 2)')
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder, code in zip(folders, (ECHO, double), strict=True):
        write_python(folder, "same", code, x_to_y())
        write_model(folder, f"ensemble_{folder.name}", ENSEMBLE)
        write_identity(folder, f"only_{folder.name}")
    return folders


def test_each_ensemble_means_the_model_beside_it(launch: Launch, namespaces: list[Path]) -> None:
    server = launch(namespaces[0], f"--model-repository={namespaces[1]}", "--model-namespacing=true")
    ask = Asker(server.port)

    assert ask.infer("ensemble_a", QUESTION).data() == [1]
    assert ask.infer("ensemble_b", QUESTION).data() == [2]
    assert ask.infer("only_a", QUESTION).data() == ask.infer("only_b", QUESTION).data() == [1]


def test_an_ambiguous_name_is_refused_as_by_triton_and_the_long_one_answers(
    launch: Launch, namespaces: list[Path]
) -> None:
    server = launch(namespaces[0], f"--model-repository={namespaces[1]}", "--model-namespacing=true")
    ask = Asker(server.port)

    message = ask.infer("same", QUESTION).refused(
        "There are 2 identifiers of model 'same' in global map, model namespace must be provided to resolve ambiguity"
    )
    long_names = re.findall("'([^']*::same)'", message)
    assert long_names == [f"{folder}::same" for folder in namespaces]
    assert [ask.infer(quote(name, safe=""), QUESTION).data() for name in long_names] == [[1], [2]]
    assert ask.get("/v2/models/same/ready").status == 400
    page = Asker(server.metrics_port).get("/metrics").body.decode()
    for folder in namespaces:
        assert f'nv_inference_request_success{{model="same",namespace="{folder}",version="1"}} 1' in page


def test_loads_and_unloads_of_an_ambiguous_name_mean_all_of_its_models(launch: Launch, namespaces: list[Path]) -> None:
    flags = [f"--model-repository={namespaces[1]}", "--model-namespacing=true", "--model-control-mode=explicit"]
    server = launch(namespaces[0], *flags, "--load-model=same")
    ask = Asker(server.port)
    long_names = [f"{folder}::same" for folder in namespaces]

    def ready() -> list[str]:
        answer = ask.post("/v2/repository/index", {"ready": True})
        return [row["name"] for row in answer.json]

    assert ready() == long_names
    assert ask.unload("same").status == 200
    assert ready() == []
    assert ask.load("same").status == 200
    assert ready() == long_names
    assert ask.load("ensemble_b").status == 200
    assert ask.infer("ensemble_b", QUESTION).data() == [2]
    assert ask.post(f"/v2/repository/models/{quote(long_names[0], safe='')}/unload", {}).status == 200
    assert ready() == [long_names[1], "ensemble_b"]


def test_a_config_by_another_name_is_served_and_followed(launch: Launch, tmp_path: Path) -> None:
    models = tmp_path / "models"
    for name in ("chosen", "plain"):
        write_identity(models, name, dims="[ 1 ]")
    (models / "chosen" / "configs").mkdir()
    chosen = models / "chosen" / "configs" / "large.pbtxt"
    chosen.write_text(f'backend: "identity"\nmax_batch_size: 8\n{x_to_y(dims="[ 1 ]")}', encoding="utf-8")
    server = launch(models, "--model-config-name=large", "--model-control-mode=explicit", "--load-model=*")
    ask = Asker(server.port)

    def batch_sizes() -> list[int]:
        return [ask.get(f"/v2/models/{name}/config").json["max_batch_size"] for name in ("chosen", "plain")]

    assert batch_sizes() == [8, 0], "a model without a config of that name has its usual one"
    assert ask.infer("chosen", tensor("X", "FP32", [3, 1], [1, 2, 3])).data() == [1, 2, 3]

    chosen.write_text(chosen.read_text(encoding="utf-8").replace("8", "16"), encoding="utf-8")
    assert ask.load("chosen").status == 200
    assert batch_sizes() == [16, 0]

    chosen.write_text("max_batch_size: many", encoding="utf-8")
    ask.load("chosen").refused(str(chosen))
    assert batch_sizes() == [16, 0], "what is broken does not replace what works"
