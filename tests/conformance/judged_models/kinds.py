"""All judged models in one source: the parameter ``kind`` says which function answers a request.

Runs unchanged on a real Triton and on Bident.
"""

import json
import time

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
SUMS = {}


def values(request, name):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()


def answer(**outputs):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in outputs.items()])


def same(given):
    name = "Y" if given.name() == "X" else given.name().replace("IN_", "OUT_")
    if name.endswith("_BF16"):
        return pb_utils.Tensor.from_dlpack(name, given)
    return pb_utils.Tensor(name, given.as_numpy())


def identity(request):
    return pb_utils.InferenceResponse([same(given) for given in request.inputs()])


def addsub(request):
    first, second = values(request, "INPUT0"), values(request, "INPUT1")
    return answer(OUTPUT0=first + second, OUTPUT1=first - second)


def partial(request):
    """One of the two outputs that the model declares."""
    return answer(Y=values(request, "X"))


def optional(request):
    first, second = values(request, "A"), values(request, "B")
    return answer(Y=first if second is None else first + second)


def upper(request):
    given = values(request, "X")
    texts = [element.decode().upper().encode() for element in given.reshape(-1)]
    lengths = np.array([len(element) for element in given.reshape(-1)], np.int32)
    return answer(Y=np.array(texts, np.object_).reshape(given.shape), LENGTH=lengths.reshape(given.shape))


def details(request):
    said = [
        request.request_id(),
        request.correlation_id(),
        request.flags(),
        request.timeout(),
        sorted(request.requested_output_names()),
        dict(sorted(json.loads(request.parameters()).items())),
        sorted(tensor.name() for tensor in request.inputs()),
    ]
    return answer(Y=np.array([json.dumps(said).encode()], np.object_))


CODES = ("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED")


def fault(request):
    number = int(values(request, "X").reshape(-1)[0])
    if number < 0:
        raise ValueError("the model raised this")
    if number == len(CODES):
        return answer(Y=np.array([1, 2, 3], np.int32))
    if number > len(CODES):
        return answer(Y=np.array([number], np.int32))
    return pb_utils.InferenceResponse(
        error=pb_utils.TritonError("told so", getattr(pb_utils.TritonError, CODES[number]))
    )


def slow(request):
    given = values(request, "X")
    time.sleep(float(given.reshape(-1)[0]))
    return answer(Y=given)


def asks(request):
    """OUTPUT0 of ``addsub`` for twice the input, or the other model's error."""
    given = values(request, "X")
    model = values(request, "MODEL")
    inner = pb_utils.InferenceRequest(
        model_name="addsub" if model is None else model.reshape(-1)[0].decode(),
        requested_output_names=["OUTPUT0"],
        inputs=[pb_utils.Tensor("INPUT0", given), pb_utils.Tensor("INPUT1", given)],
    ).exec()
    if inner.has_error():
        return pb_utils.InferenceResponse(error=inner.error())
    return answer(Y=pb_utils.get_output_tensor_by_name(inner, "OUTPUT0").as_numpy())


def accumulate(request):
    """The sum of a sequence so far, and the controls it came with."""
    start, end = (int(values(request, name).reshape(-1)[0]) for name in ("START", "END"))
    correlation = values(request, "CORRID").reshape(-1)[0]
    given = values(request, "X")
    total = given + (0 if start else SUMS.get(correlation, 0))
    SUMS[correlation] = total
    if end:
        del SUMS[correlation]
    key = correlation if isinstance(correlation, bytes) else str(correlation).encode()
    controls = np.array([start, end], np.int32).reshape((1,) * (given.ndim - 1) + (2,))
    return answer(Y=total, CONTROLS=controls, KEY=np.array([key], np.object_).reshape((*given.shape[:-1], 1)))


def generated(request):
    text = values(request, "text").reshape(-1)
    times, scale = values(request, "times"), values(request, "scale")
    loud = values(request, "loud")
    said = b" ".join(text)
    if loud is not None and bool(loud.reshape(-1)[0]):
        said = said.upper()
    count = 1 if times is None else int(times.reshape(-1)[0])
    numbers = np.arange(count, dtype=np.float32) * np.float32(1 if scale is None else scale.reshape(-1)[0])
    return answer(said=np.array([said], np.object_), numbers=numbers)


def repeat(request):
    """A response for each element of X; a negative one is an error."""
    sender = request.get_response_sender()
    for number in values(request, "X").reshape(-1).tolist():
        if number < 0:
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(f"no {number}")))
        else:
            sender.send(answer(Y=np.array([number], np.int32)))
    sender.send(flags=FINAL)


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.kind = globals()[config["parameters"]["kind"]["string_value"]]
        self.count = 0

    def execute(self, requests):
        if self.kind is counted:
            return [counted(self, request) for request in requests]
        responses = [self.kind(request) for request in requests]
        return None if self.kind is repeat else responses


def counted(model, request):
    """How often this model was asked, by which an answer out of a cache is known."""
    model.count += 1
    given = values(request, "X")
    return answer(Y=given, COUNT=np.array([model.count], np.int32))
