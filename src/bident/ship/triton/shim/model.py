"""A model that this Triton has no backend for, run by Bident's backend inside Triton's Python backend.

Written by `bident serve tensor --engine=triton`; model.json beside it says which model it is. The Python that
runs it needs bident and what that backend needs, as the one has that bident runs in.
"""

import contextlib
import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One instance: requests in, the backend's answers out."""

    def initialize(self, args):
        """Load the model from its own folder. Raises what its config or its file is wrong in."""
        # Here and not above: Triton also imports this file to ask for a config, and must not wait for that.
        from bident.backends.base import Device, ModelFiles
        from bident.backends.discovery import Backends
        from bident.engine.loader import Loader, usable_cores
        from bident.errors import ServeError
        from bident.model.folder import ModelFolder

        source = json.loads(Path(__file__).with_name("model.json").read_text(encoding="utf-8"))
        folder = ModelFolder(
            args["model_name"], Path(source["directory"]), source["config_name"], source["auto_complete"]
        )
        loader = Loader(Backends(source["options"]), auto_complete=source["auto_complete"])
        try:
            self.config, backend = loader.configure(folder)
            device = Device("cpu", max(1, usable_cores() // self.config.instance_count), args["model_instance_name"])
            self.instance = backend.load(ModelFiles(folder.directory, int(args["model_version"])), self.config, device)
        except ServeError as error:
            raise pb_utils.TritonModelException(error.message) from None

    def execute(self, requests):
        """Answer all requests together, or, where that fails, each by itself: one may be at fault."""
        if len(requests) > 1 and self.config.max_batch_size:
            with contextlib.suppress(Exception):
                return self._run(requests)
        return [self._run_alone(request) for request in requests]

    def _run_alone(self, request):
        try:
            return self._run([request])[0]
        except Exception as error:  # noqa: BLE001 - whatever a backend raises is this request's answer
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))

    def _run(self, requests):
        asked = [{tensor.name(): tensor.as_numpy() for tensor in request.inputs()} for request in requests]
        names = {name for one in asked for name in one}  # a request without one of them is a KeyError: not alike
        inputs = {name: np.concatenate([one[name] for one in asked]) for name in names} if asked[1:] else asked[0]
        outputs = self.instance.execute(inputs)
        outputs = {name: np.ascontiguousarray(outputs[name]) for name in self.config.outputs if name in outputs}
        if not asked[1:]:
            return [self._response(outputs)]
        *borders, end = np.cumsum([len(next(iter(one.values()))) for one in asked])
        if any(len(array) != end for array in outputs.values()):
            raise ValueError("rows of the answers do not tell whose they are")
        parts = {name: np.split(array, borders) for name, array in outputs.items()}
        return [self._response({name: part[at] for name, part in parts.items()}) for at in range(len(asked))]

    def _response(self, outputs):
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in outputs.items()])

    def finalize(self):
        """Give back what the model holds."""
        if hasattr(self, "instance"):
            self.instance.close()
