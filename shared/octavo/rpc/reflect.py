"""Clients of the standard health and reflection services, which every server here has."""

from __future__ import annotations

from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from octavo.rpc.channel import open_channel
from octavo.rpc.error import call

TIMEOUT_S = 5.0


async def check_health(address: str, service: str = "", timeout_s: float = TIMEOUT_S) -> bool:
    """Whether the server says SERVING; raises `Unavailable` when nothing listens."""
    async with open_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=service)
        reply = await call(lambda: stub.Check(request, timeout=timeout_s))
        return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


async def list_services(address: str, timeout_s: float = TIMEOUT_S) -> list[str]:
    """Full names of the services that the server reflects."""
    async with open_channel(address) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        stream = stub.ServerReflectionInfo(iter([request]), timeout=timeout_s)
        reply = await call(stream.read)
        return [service.name for service in reply.list_services_response.service]
