import pytest

from bident.errors import ConfigError
from bident.model import autofill, pbtxt
from bident.model.proto import pb


def fill(directory, config="", versions=(1,)):
    proto = pbtxt.parse(config.encode(), "x")
    autofill.fill_backend(proto, directory, list(versions))
    return proto.backend, proto.platform, proto.default_model_filename


def place(directory, *names):
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return directory


@pytest.mark.parametrize(
    ("filename", "backend", "platform"),
    [
        ("model.onnx", "onnxruntime", "onnxruntime_onnx"),
        ("model.xml", "openvino", ""),
        ("model.pt", "pytorch", "pytorch_libtorch"),
        ("model.pt2", "pytorch", "torch_aoti"),
        ("model.py", "python", ""),
        ("model.plan", "tensorrt", "tensorrt_plan"),
        ("xgboost.json", "fil", ""),
        ("xgboost.ubj", "fil", ""),
        ("xgboost.model", "fil", ""),
        ("model.txt", "fil", ""),
        ("checkpoint.tl", "fil", ""),
    ],
)
def test_the_file_tells_the_backend(filename, backend, platform, tmp_path):
    assert fill(place(tmp_path / "m", f"1/{filename}")) == (backend, platform, filename)


@pytest.mark.parametrize(
    ("config", "filled"),
    [
        ('platform: "onnxruntime_onnx"', ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ('backend: "onnxruntime"', ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ('default_model_filename: "model.pt"', ("pytorch", "pytorch_libtorch", "model.pt")),
        ('backend: "pytorch" runtime: "model.py"', ("pytorch", "pytorch_libtorch", "")),
        ('backend: "pytorch" platform: "torch_aoti"', ("pytorch", "torch_aoti", "model.pt2")),
        ('backend: "onnxruntime" default_model_filename: "big.onnx"', ("onnxruntime", "onnxruntime_onnx", "big.onnx")),
        ('backend: "python"', ("python", "", "model.py")),
        ('backend: "fil"', ("fil", "", "")),
        ('backend: "mine"', ("mine", "", "")),
        ('platform: "ensemble"', ("", "ensemble", "")),
        (
            'backend: "tensorflow" platform: "tensorflow_savedmodel"',
            ("tensorflow", "tensorflow_savedmodel", "model.savedmodel"),
        ),
    ],
)
def test_what_is_declared_is_completed_without_a_look_at_the_files(config, filled, tmp_path):
    assert fill(tmp_path / "absent", config) == filled


@pytest.mark.parametrize(
    ("platform", "cure"),
    [
        ("python", r"'python' is a backend: write backend: \"python\", and no platform"),
        ("onnxruntime", r"write backend: \"onnxruntime\""),
        ("onnxruntime_onx", r"did you mean 'onnxruntime_onnx'\?"),
        ("ensembl", r"did you mean 'ensemble'\?"),
    ],
)
def test_a_platform_that_is_none_is_refused(platform, cure, tmp_path):
    with pytest.raises(ConfigError, match=rf"unexpected platform type '{platform}' for absent; .*{cure}"):
        fill(tmp_path / "absent", f'platform: "{platform}"')


def test_the_name_is_that_of_the_folder(tmp_path):
    proto = pb.ModelConfig()
    autofill.fill_backend(proto, place(tmp_path / "churn", "1/model.onnx"), [1])
    assert proto.name == "churn"


def test_a_model_may_be_a_folder(tmp_path):
    assert fill(place(tmp_path / "m", "1/model.onnx/weights.bin"))[0] == "onnxruntime"


def test_a_later_version_may_tell(tmp_path):
    directory = place(tmp_path / "m", "1/readme", "2/model.onnx")
    assert fill(directory, versions=(1, 2))[0] == "onnxruntime"


def test_a_custom_backend_is_named_by_the_model(tmp_path):
    assert fill(place(tmp_path / "double.identity", "1/any")) == ("identity", "", "model.identity")


@pytest.mark.parametrize(
    ("files", "versions", "cure"),
    [
        (["1/Model.ONNX"], (1,), "rename 'Model.ONNX' to 'model.onnx'"),
        (["1/model.onnx.txt"], (1,), "rename 'model.onnx.txt' to 'model.onnx'"),
        (["1/model.onnx", "config.pbtxt.txt"], (), "rename 'config.pbtxt.txt' to 'config.pbtxt'"),
        (["1/weights.bin", "config.pbtext"], (1,), "rename 'config.pbtext' to 'config.pbtxt'"),
        (["m/1/model.onnx"], (), "one level too deep"),
        (["model.onnx"], (), "into a version folder"),
        (["01/model.onnx"], (), "rename the version folder '01' to '1'"),
        (["1/best.onnx"], (1,), "rename 'best.onnx' to 'model.onnx'"),
        (["1/export/model.onnx"], (1,), "move 'export/model.onnx' one folder up"),
        (["v1/model.onnx"], (), "rename the folder 'v1' to '1'"),
        (["latest/best.onnx"], (), "rename the folder 'latest' to '1'"),
        (["1/chat.gguf"], (1,), "'chat.gguf' is for the text engine: 'bident pull "),
        (["1/model.pkl"], (1,), "'model.pkl' is a pickle, which is never loaded: export the model to ONNX"),
        (["1/weights.bin"], (1,), "set backend in config.pbtxt"),
        ([], (), "holds nothing"),
    ],
)
def test_near_misses_are_recognised(files, versions, cure, tmp_path):
    directory = place(tmp_path / "m", *files)
    with pytest.raises(ConfigError) as refused:
        fill(directory, versions=versions)
    message = refused.value.message
    assert message.startswith("Invalid model name: Could not determine backend for model 'm' with no backend")
    assert cure in message
    assert "Looked for model.savedmodel" in message
    assert all(part.split("/")[0] in message for part in files)


def test_a_dotted_name_is_no_excuse_for_a_near_miss(tmp_path):
    with pytest.raises(ConfigError, match=r"rename 'Model\.ONNX' to 'model\.onnx'"):
        fill(place(tmp_path / "yolo.v8", "1/Model.ONNX"))


def test_a_file_name_alone_may_not_do(tmp_path):
    with pytest.raises(ConfigError, match=r"unexpected platform type '' for m: .* add backend: \"onnxruntime\""):
        fill(tmp_path / "m", 'default_model_filename: "best.onnx"')
