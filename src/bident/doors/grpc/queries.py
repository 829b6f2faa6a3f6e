"""The methods that ask about the server and its models: health, metadata, configuration, statistics, index."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format

from bident.doors import reports
from bident.doors.grpc.infer_request import model_version
from bident.doors.grpc.messages import pb
from bident.engine.engine import Engine
from bident.errors import Code, ServeError


class Queries:
    """Answers them for one engine. Each method takes its request message and returns its response message."""

    def __init__(self, engine: Engine, *, name: str, version: str) -> None:
        """``name`` and ``version`` are what ``ServerMetadata`` says of the server."""
        self._engine = engine
        self._metadata = pb.ServerMetadataResponse(**reports.server_metadata(name, version))

    def server_live(self, request: Any) -> Any:
        """True while the process can answer."""
        self._engine.check_running()
        return pb.ServerLiveResponse(live=True)

    async def server_ready(self, request: Any) -> Any:
        """Whether every model that should be ready is."""
        self._engine.check_running()
        return pb.ServerReadyResponse(ready=await self._engine.check_ready())

    async def model_ready(self, request: Any) -> Any:
        """Whether the model answers requests; false also for a model that there is not."""
        version = model_version(request.version)
        return pb.ModelReadyResponse(ready=await self._engine.check_model_ready(request.name, version))

    def server_metadata(self, request: Any) -> Any:
        """Name, version and extensions."""
        return self._metadata

    def model_metadata(self, request: Any) -> Any:
        """Inputs, outputs and versions of a model."""
        document = reports.model_metadata(self._engine, request.name, model_version(request.version))
        return json_format.ParseDict(document, pb.ModelMetadataResponse())

    def model_config(self, request: Any) -> Any:
        """The completed configuration."""
        servable = self._engine.model(request.name, model_version(request.version))
        return pb.ModelConfigResponse(config=servable.config.proto)

    async def model_statistics(self, request: Any) -> Any:
        """The figures of one model, or of all."""
        document = await reports.statistics(self._engine, request.name, model_version(request.version))
        return json_format.ParseDict(document, pb.ModelStatisticsResponse(), ignore_unknown_fields=True)

    async def repository_index(self, request: Any) -> Any:
        """What the repositories hold and where each version stands."""
        refuse_repository(request)
        rows = await self._engine.index(ready=request.ready)
        return pb.RepositoryIndexResponse(models=[pb.RepositoryIndexResponse.ModelIndex(**row) for row in rows])


def refuse_repository(request: Any) -> None:
    """Raise UNSUPPORTED if ``request`` names one of the repositories, as Triton does."""
    if request.repository_name:
        raise ServeError(
            Code.UNSUPPORTED,
            "'repository_name' specification is not supported: leave it empty, all repositories are looked through",
        )
