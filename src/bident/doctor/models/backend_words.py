"""The words of ``backend`` and ``platform``."""

from __future__ import annotations

from collections.abc import Iterator

from bident.backends.discovery import Backends
from bident.doctor.models.case import Case, ModelCheck, Seen
from bident.doctor.models.config_edit import Step, config_fix
from bident.model.hints import closest, listed
from bident.model.validate import PLATFORMS

_PLATFORMS = {word: backend for backend, words in PLATFORMS.items() for word in words} | {"ensemble": ""}
"""The backend of each platform; an ensemble has none."""
_OF_TRITON = ("onnxruntime", "python", "fil", "identity", "pytorch", "tensorflow", "tensorrt", "openvino", "dali",
              "vllm", "tensorrtllm", "repeat", "square")  # fmt: skip
_MEANT = {
    "onnx": "onnxruntime",
    "ort": "onnxruntime",
    "sklearn": "onnxruntime",
    "xgboost": "fil",
    "lightgbm": "fil",
    "treelite": "fil",
    "xgb": "fil",
    "py": "python",
    "python3": "python",
    "torch": "pytorch",
    "libtorch": "pytorch",
    "torchscript": "pytorch",
    "tf": "tensorflow",
    "trt": "tensorrt",
}
"""What things are called elsewhere."""


class BackendWord(ModelCheck):
    """A backend that nobody has."""

    name = "backend-word"
    title = "backend or platform is a word that no server knows"
    cause = "backend is the name of Triton's backend, platform its older word for backend and file format together"

    def look(self, case: Case) -> Iterator[Seen]:
        if case.proto is None:
            return
        backend, platform = str(case.proto.backend), str(case.proto.platform)
        known = {*_OF_TRITON, *Backends().names()}
        if backend and backend not in known:
            meant = _meant(backend, known)
            yield self._seen(case, "backend", backend, meant, [Step("backend", f'"{meant}"')])
        elif platform and not backend and platform not in _PLATFORMS:
            meant = _meant(platform, {*known, *_PLATFORMS})
            steps = [Step("platform", f'"{meant}"')]
            if meant not in _PLATFORMS:
                steps = [Step("platform"), Step("backend", f'"{meant}"')]
            yield self._seen(case, "platform", platform, meant, steps)

    def _seen(self, case: Case, field: str, word: str, meant: str, steps: list[Step]) -> Seen:
        written = " and ".join(f"{step.name}: {step.value}" for step in steps if step.value)
        return Seen(
            case.config_path,
            f'{field}: "{word}"',
            f"write {written}" if meant else f"write one of {listed(Backends().names())}",
            fix=config_fix(f"write {written}", case.config_path, steps) if meant else None,
        )


def _meant(word: str, known: set[str]) -> str:
    backend = _PLATFORMS.get(word) or _MEANT.get(word.lower()) or word.lower().removesuffix("_backend")
    return backend if backend in known else closest(word, sorted(known)) or ""


class BackendAbsent(ModelCheck):
    """A backend that Triton has and Bident has not."""

    name = "backend-absent"
    title = "The model needs a backend that is not here: TorchScript, TensorFlow, TensorRT and others"
    cause = (
        "Bident runs ONNX, trees and Python models; the other formats of Triton need their frameworks' own libraries"
    )

    def look(self, case: Case) -> Iterator[Seen]:
        if case.target is None and case.backend in _OF_TRITON and case.backend not in Backends().names():
            yield Seen(
                case.directory,
                f"it is for the backend '{case.backend}' (here: {', '.join(Backends().names())})",
                _CURES.get(case.backend, "serve it with a real Triton: bident serve tensor --engine triton"),
            )


_CURES = {
    "pytorch": "export it: torch.onnx.export, then 'bident add model.onnx'; or load it in a model.py",
    "tensorflow": "convert it: python -m tf2onnx.convert --saved-model DIR --output model.onnx, then 'bident add'",
    "openvino": "export the original model to ONNX, then 'bident add model.onnx'",
    "tensorrt": "a plan fits one kind of GPU: serve the ONNX file that it was made of",
}
