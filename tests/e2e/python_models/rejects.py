"""Refuses the negative numbers among its requests, each with a code of its own, and answers the others."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(int(request.inputs()[0].as_numpy().reshape(-1)[0]), request) for request in requests]

    @staticmethod
    def answer(number, request):
        if number >= 0:
            return pb_utils.InferenceResponse([pb_utils.Tensor("Y", request.inputs()[0].as_numpy())])
        code = [
            pb_utils.TritonError.UNKNOWN,
            pb_utils.TritonError.INTERNAL,
            pb_utils.TritonError.NOT_FOUND,
            pb_utils.TritonError.INVALID_ARG,
            pb_utils.TritonError.UNAVAILABLE,
            pb_utils.TritonError.UNSUPPORTED,
            pb_utils.TritonError.ALREADY_EXISTS,
            pb_utils.TritonError.CANCELLED,
        ][-number - 1]
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"no {number}", code))
