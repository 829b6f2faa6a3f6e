"""A whole engine behind the gRPC service, without a network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.doors.grpc.grpc_stage import Site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("grpc"))
    yield site
    site.close()
