"""`GrpcServer`: a grpc.aio server with limits, keepalive, and the standard health and reflection services."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from octavo.errors import Unavailable
from octavo.rpc.channel import LIMITS, MAX_MESSAGE_BYTES
from octavo.rpc.malformed import MalformedRequests

_SERVER: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.so_reuseport", 0),
)


class GrpcServer:
    """One listening server.  Add services, start, flip its health, stop.

    `start` binds `host:port` (0: a free port) and leaves the result in `address`; raises `Unavailable` when the port is
    taken.  Overall health (service "") is NOT_SERVING until `set_serving(True)`.  A request of more than
    `max_request_bytes` is refused before it is read.
    """

    def __init__(self, host: str, port: int, max_request_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self.address = f"{host}:{port}"
        self._host = host
        limits = {**dict(LIMITS), "grpc.max_receive_message_length": max_request_bytes}
        self._server = grpc.aio.server(interceptors=[MalformedRequests()], options=(*limits.items(), *_SERVER))
        self._health = health_aio.HealthServicer()
        self._names = [health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    def add(self, add_to_server: Callable[[Any, grpc.aio.Server], None], servicer: Any, full_name: str) -> None:
        """Add a servicer with its generated `add_XServicer_to_server` under its full proto name."""
        add_to_server(servicer, self._server)
        self._names.append(full_name)

    async def start(self) -> str:
        reflection.enable_server_reflection(self._names, self._server)
        try:
            port = self._server.add_insecure_port(self.address)
        except RuntimeError as error:
            raise Unavailable(f"cannot listen on {self.address}: {error}") from None
        self.address = f"{self._host}:{port}"
        await self.set_serving(False)
        await self._server.start()
        return self.address

    async def set_serving(self, is_serving: bool) -> None:
        status = health_pb2.HealthCheckResponse
        await self._health.set("", status.SERVING if is_serving else status.NOT_SERVING)

    async def stop(self, grace_s: float = 1.0) -> None:
        """Refuse new calls, let open ones end for `grace_s`, then cut them."""
        await self._server.stop(grace_s)
