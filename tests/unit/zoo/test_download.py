"""Downloads: only the pinned file is accepted, and nothing is left of any other."""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from bident.errors import Code, ServeError
from bident.zoo import resnet18, yolov8n
from bident.zoo.download import RemoteFile, fetch, verify

CONTENT = bytes(range(256)) * 4096
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def silent(step, fraction):
    pass


@pytest.fixture
def url():
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/file" else 404)
            self.end_headers()
            self.wfile.write(CONTENT)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_the_pinned_file_arrives_with_progress(url, tmp_path):
    fractions = []
    fetch(
        RemoteFile(f"{url}/file", len(CONTENT), DIGEST),
        tmp_path / "file",
        lambda step, fraction: fractions.append(fraction),
    )
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0


@pytest.mark.parametrize(("size", "digest"), [(len(CONTENT), "0" * 64), (1000, DIGEST)], ids=["other", "too long"])
def test_another_file_is_refused_and_removed(url, tmp_path, size, digest):
    with pytest.raises(ServeError, match="expected sha256") as caught:
        fetch(RemoteFile(f"{url}/file", size, digest), tmp_path / "file", silent)
    assert caught.value.code is Code.INVALID_ARG
    assert not (tmp_path / "file").exists()


def test_an_error_status_is_refused(url, tmp_path):
    with pytest.raises(ServeError, match="404") as caught:
        fetch(RemoteFile(f"{url}/gone", len(CONTENT), DIGEST), tmp_path / "file", silent)
    assert caught.value.code is Code.UNAVAILABLE
    assert not (tmp_path / "file").exists()


def test_a_slow_transfer_is_given_up(url, tmp_path):
    with pytest.raises(ServeError, match="too slow"):
        fetch(RemoteFile(f"{url}/file", len(CONTENT), DIGEST), tmp_path / "file", silent, total_s=-1)
    assert not (tmp_path / "file").exists()


def test_verify_names_the_source(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(b"tampered")
    with pytest.raises(ServeError, match=r"weights of x==1 is not the file.*it was not used"):
        verify(path, "0" * 64, "weights of x==1")


def test_resnet18_with_the_wrong_file_falls_back_to_synthetic_and_says_why(url, tmp_path, monkeypatch):
    monkeypatch.setattr(resnet18, "MODEL", RemoteFile(f"{url}/file", len(CONTENT), "0" * 64))
    facts = resnet18.RECIPE.build(tmp_path).facts
    assert facts.synthetic
    assert "expected sha256" in facts.origin


def test_resnet18_that_does_not_see_class_623_in_the_zero_image_is_refused(tmp_path, monkeypatch):
    from bident.zoo.networks import resnet18 as network

    monkeypatch.setattr(resnet18, "fetch", lambda remote, path, report: network.save_synthetic(path, 3))
    with pytest.raises(ServeError, match="expected class 623"):
        resnet18.RECIPE.build(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_resnet18_with_the_model_zoos_file_is_real(tmp_path, monkeypatch):
    import onnx

    from bident.zoo.networks import resnet18 as network

    def arrives(remote, path, report):
        """A network that sees class 623 in everything, as the real one does in the zero image."""
        network.save_synthetic(path, 3)
        model = onnx.load(path)
        bias = np.zeros(1000, np.float32)
        bias[623] = 100
        model.graph.initializer[-1].CopyFrom(onnx.numpy_helper.from_array(bias, model.graph.initializer[-1].name))
        onnx.save(model, path)

    monkeypatch.setattr(resnet18, "fetch", arrives)
    facts = resnet18.RECIPE.build(tmp_path).facts
    assert (facts.synthetic, facts.expected) == (False, {"class": 623})
    assert "synthetic" not in (tmp_path / "resnet18" / "config.pbtxt").read_text()


def fake_ultralytics(folder, monkeypatch, export):
    """A package that stands in for ultralytics in the exporting process."""
    (folder / "ultralytics").mkdir(parents=True)
    (folder / "ultralytics" / "__init__.py").write_text(export)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_yolov8n_is_what_ultralytics_exports(tmp_path, monkeypatch):
    fake_ultralytics(
        tmp_path / "packages",
        monkeypatch,
        "class YOLO:\n"
        "    def __init__(self, weights): assert weights == 'yolov8n.pt'\n"
        "    def export(self, format, opset, dynamic): open('yolov8n.onnx', 'wb').write(b'exported')\n",
    )
    monkeypatch.setattr(yolov8n, "run_onnx", lambda path, inputs: {"contents": path.read_bytes()})
    monkeypatch.setattr(yolov8n, "_best", lambda answer: (0 if answer["contents"] == b"exported" else 1, 0.9))
    facts = yolov8n.RECIPE.build(tmp_path / "repository").facts
    assert not facts.synthetic
    assert "synthetic" not in (tmp_path / "repository" / "yolov8n" / "config.pbtxt").read_text()


def test_yolov8n_without_weights_is_synthetic_and_says_why(tmp_path, monkeypatch):
    fake_ultralytics(
        tmp_path / "packages", monkeypatch, "def YOLO(weights): raise ConnectionError('cannot fetch weights')\n"
    )
    facts = yolov8n.RECIPE.build(tmp_path / "repository").facts
    assert facts.synthetic
    assert "cannot fetch weights" in facts.origin
