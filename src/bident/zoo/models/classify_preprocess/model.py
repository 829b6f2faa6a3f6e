"""Pictures in, what an image classifier takes out: the middle square, scaled and normalised.

Runs on Triton and Bident; needs numpy and Pillow. Parameters in config.pbtxt: INPUT_SIZE (side of the
square in pixels), MEAN and STD (of values from 0 to 255; one number, or one for each of R, G and B with
commas between them) and MAX_PIXELS (of all pictures of a request together; more are refused).
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from crop import crop
from pictures import Picture, PictureError


class TritonPythonModel:
    """IMAGE (the bytes of JPEG or PNG files) to PIXELS."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters."""
        declared = json.loads(args["model_config"])["parameters"]
        parameters = {name: entry["string_value"] for name, entry in declared.items()}
        self._size = int(parameters["INPUT_SIZE"])
        self._max_pixels = int(parameters["MAX_PIXELS"])
        self._mean, self._std = (tuple(map(float, parameters[name].split(","))) for name in ("MEAN", "STD"))

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request: as many pictures as its batch has rows."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        rows = pb_utils.get_input_tensor_by_name(request, "IMAGE").as_numpy().reshape(-1)
        row = 0
        try:
            pictures = []
            for row, data in enumerate(rows):  # noqa: B007 - the error below names it
                pictures.append(Picture(data, self._max_pixels))
            # Before anything is decoded: every other request waits as long as this one takes.
            total = sum(picture.width * picture.height for picture in pictures)
            if total > self._max_pixels:
                return _refusal(
                    f"the {len(rows)} pictures in 'IMAGE' have {total} pixels together, and at most {self._max_pixels} "
                    "are taken in one request (parameter MAX_PIXELS): send fewer at a time, or scale them down"
                )
            pixels = np.empty((len(rows), 3, self._size, self._size), np.float32)
            for row, picture in enumerate(pictures):
                pixels[row] = crop(picture, self._size, self._mean, self._std)
        except PictureError as error:
            return _refusal(f"the picture in 'IMAGE', row {row}, cannot be used: {error}")
        return pb_utils.InferenceResponse([pb_utils.Tensor("PIXELS", pixels)])


def _refusal(message: str) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG))
