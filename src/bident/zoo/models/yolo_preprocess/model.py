"""Pictures in, what a YOLO network takes out: the whole picture in a grey square, RGB from 0 to 1.

Runs on Triton and Bident; needs numpy and Pillow. Parameters in config.pbtxt: INPUT_SIZE (side of the
square in pixels) and MAX_PIXELS (of the picture; more are refused).
"""

from __future__ import annotations

import json
from typing import Any

import triton_python_backend_utils as pb_utils
from letterbox import letterbox
from pictures import Picture, PictureError


class TritonPythonModel:
    """IMAGE (the bytes of a JPEG or PNG file) to PIXELS and PLACEMENT."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters."""
        parameters = json.loads(args["model_config"])["parameters"]
        self._size = int(parameters["INPUT_SIZE"]["string_value"])
        self._max_pixels = int(parameters["MAX_PIXELS"]["string_value"])

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request: one picture."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        (data,) = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy().reshape(-1)
        try:
            pixels, placement = letterbox(Picture(data, self._max_pixels), self._size)
        except PictureError as error:
            message = f"the picture in 'IMAGE' cannot be used: {error}"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG))
        return pb_utils.InferenceResponse([pb_utils.Tensor("PIXELS", pixels), pb_utils.Tensor("PLACEMENT", placement)])
