"""Tensors of ModelInfer in shared memory: parameters that do not fit, and regions that are not there."""

from __future__ import annotations

from typing import Any

import pytest

from bident.doors.grpc.call import Status
from tests.unit.doors.grpc.grpc_questions import parameter, question, raw, refused
from tests.unit.doors.grpc.grpc_stage import RefusedError, Site


@pytest.mark.parametrize("part", ["inputs", "outputs"])
@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (
            {"shared_memory_region": 1},
            "invalid value type for 'shared_memory_region' parameter{}, expected string_param",
        ),
        (
            {"shared_memory_offset": 1},
            "'shared_memory_offset' can not be specified without 'shared_memory_region' parameter{}",
        ),
        (
            {"shared_memory_byte_size": 1},
            "'shared_memory_byte_size' can not be specified without 'shared_memory_region' parameter{}",
        ),
        (
            {"shared_memory_region": "r"},
            "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter{}",
        ),
    ],
)
def test_parameters_that_do_not_fit(site: Site, part: str, parameters: dict[str, Any], text: str) -> None:
    request = raw("INT8", [1, 2])
    request.outputs.add(name="Y")
    tensor = getattr(request, part)[0]
    for key, value in parameters.items():
        tensor.parameters[key].CopyFrom(parameter(value))
    assert text.format(f" for tensor '{tensor.name}'") in refused(site, request)


def test_a_region_that_nobody_registered(site: Site) -> None:
    request = question("INT8")
    for key, value in (("shared_memory_region", "r"), ("shared_memory_byte_size", 2)):
        request.inputs[0].parameters[key].CopyFrom(parameter(value))
    for _ in range(2):
        with pytest.raises(RefusedError, match="Unable to find shared memory region: 'r'") as caught:
            site.infer(request)
        assert caught.value.status is Status.NOT_FOUND
    request.inputs[0].contents.int_contents.extend([1, 2])
    assert "unexpected 'content' provided when using shared memory for input tensor 'X'" in refused(site, request)


def test_classes_in_a_region(site: Site) -> None:
    request = raw("INT8", [1, 2])
    output = request.outputs.add(name="Y")
    for key, value in (("shared_memory_region", "r"), ("shared_memory_byte_size", 2), ("classification", 1)):
        output.parameters[key].CopyFrom(parameter(value))
    assert "output can't set both 'shared_memory_region' and 'classification'" in refused(site, request)
