"""The Router and Registry services: server adaptors and clients that speak plain structs."""

from __future__ import annotations

from typing import Any, Protocol

import grpc

from octavo.kv.record import WorkerRecord
from octavo.pb import common_pb2, registry_pb2, registry_pb2_grpc, router_pb2, router_pb2_grpc
from octavo.rpc import convert
from octavo.rpc.channel import open_channel
from octavo.rpc.error import answer, call
from octavo.rpc.placement import Fleet, Placement, PlaceRequest, ServerInfo
from octavo.rpc.server import GrpcServer

CALL_TIMEOUT_S = 5.0


class RouterApi(Protocol):
    """What a router implements; methods raise typed errors."""

    async def place(self, request: PlaceRequest) -> Placement: ...
    async def fleet(self) -> Fleet: ...
    async def info(self) -> ServerInfo: ...


class RegistryApi(Protocol):
    """What a registry implements; methods raise typed errors."""

    async def register(self, record: WorkerRecord) -> float:
        """Join; returns the heartbeat period in seconds."""
        ...

    async def heartbeat(self, worker_id: str, incarnation: str, is_ready: bool) -> bool:
        """Returns whether the worker must register again."""
        ...

    async def deregister(self, worker_id: str, incarnation: str) -> None: ...


class _RouterServicer(router_pb2_grpc.RouterServicer):
    def __init__(self, api: RouterApi) -> None:
        self._api = api

    async def Place(self, request: router_pb2.PlaceRequest, context: Any) -> router_pb2.PlaceReply:
        return convert.placement_to_pb(await answer(context, self._api.place(convert.place_from_pb(request))))

    async def Fleet(self, request: router_pb2.FleetRequest, context: Any) -> router_pb2.FleetReply:
        return convert.fleet_to_pb(await answer(context, self._api.fleet()))

    async def GetInfo(self, request: router_pb2.RouterInfoRequest, context: Any) -> common_pb2.ServerInfo:
        return convert.info_to_pb(await answer(context, self._api.info()))


class _RegistryServicer(registry_pb2_grpc.RegistryServicer):
    def __init__(self, api: RegistryApi) -> None:
        self._api = api

    async def Register(self, request: registry_pb2.RegisterRequest, context: Any) -> registry_pb2.RegisterReply:
        period_s = await answer(context, self._api.register(convert.record_from_pb(request.record)))
        return registry_pb2.RegisterReply(heartbeat_period_s=period_s)

    async def Heartbeat(self, request: registry_pb2.HeartbeatRequest, context: Any) -> registry_pb2.HeartbeatReply:
        beat = self._api.heartbeat(request.worker_id, request.incarnation, request.is_ready)
        return registry_pb2.HeartbeatReply(needs_record=await answer(context, beat))

    async def Deregister(self, request: registry_pb2.DeregisterRequest, context: Any) -> registry_pb2.DeregisterReply:
        await answer(context, self._api.deregister(request.worker_id, request.incarnation))
        return registry_pb2.DeregisterReply()


def add_router(server: GrpcServer, router: RouterApi, registry: RegistryApi) -> None:
    """Serve both services of a router."""
    server.add(router_pb2_grpc.add_RouterServicer_to_server, _RouterServicer(router), "octavo.v1.Router")
    server.add(registry_pb2_grpc.add_RegistryServicer_to_server, _RegistryServicer(registry), "octavo.v1.Registry")


class _Client:
    def __init__(self, address: str, channel: grpc.aio.Channel | None = None) -> None:
        self.address = address
        self._channel = channel or open_channel(address)

    async def close(self) -> None:
        await self._channel.close()


class RouterClient(_Client):
    """Calls one router; methods raise the typed error that the router raised, or `Unavailable`."""

    def __init__(self, address: str, channel: grpc.aio.Channel | None = None) -> None:
        super().__init__(address, channel)
        self._stub: Any = router_pb2_grpc.RouterStub(self._channel)

    async def place(self, request: PlaceRequest, timeout_s: float = CALL_TIMEOUT_S) -> Placement:
        message = convert.place_to_pb(request)
        return convert.placement_from_pb(await call(lambda: self._stub.Place(message, timeout=timeout_s)))

    async def fleet(self, timeout_s: float = CALL_TIMEOUT_S) -> Fleet:
        message = router_pb2.FleetRequest()
        return convert.fleet_from_pb(await call(lambda: self._stub.Fleet(message, timeout=timeout_s)))

    async def info(self, timeout_s: float = CALL_TIMEOUT_S) -> ServerInfo:
        message = router_pb2.RouterInfoRequest()
        return convert.info_from_pb(await call(lambda: self._stub.GetInfo(message, timeout=timeout_s)))


class RegistryClient(_Client):
    """Calls the registry of one router."""

    def __init__(self, address: str, channel: grpc.aio.Channel | None = None) -> None:
        super().__init__(address, channel)
        self._stub: Any = registry_pb2_grpc.RegistryStub(self._channel)

    async def register(self, record: WorkerRecord, timeout_s: float = CALL_TIMEOUT_S) -> float:
        message = convert.register_to_pb(record)
        reply = await call(lambda: self._stub.Register(message, timeout=timeout_s))
        return float(reply.heartbeat_period_s)

    async def heartbeat(
        self, worker_id: str, incarnation: str, is_ready: bool, timeout_s: float = CALL_TIMEOUT_S
    ) -> bool:
        message = registry_pb2.HeartbeatRequest(worker_id=worker_id, incarnation=incarnation, is_ready=is_ready)
        reply = await call(lambda: self._stub.Heartbeat(message, timeout=timeout_s))
        return bool(reply.needs_record)

    async def deregister(self, worker_id: str, incarnation: str, timeout_s: float = CALL_TIMEOUT_S) -> None:
        message = registry_pb2.DeregisterRequest(worker_id=worker_id, incarnation=incarnation)
        await call(lambda: self._stub.Deregister(message, timeout=timeout_s))
