"""The Worker service: server adaptor, unary client, and the control stream of a session."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Protocol

import grpc

from octavo.errors import InvalidInput
from octavo.pb import common_pb2, worker_pb2, worker_pb2_grpc
from octavo.rpc import convert
from octavo.rpc.channel import open_channel
from octavo.rpc.error import answer, call, from_rpc_error
from octavo.rpc.placement import ProbeResult, ServerInfo, WorkerStatus
from octavo.rpc.server import GrpcServer
from octavo.rpc.session import FromWorkerMessage, ToWorkerMessage

CALL_TIMEOUT_S = 5.0


class SessionStream:
    """The worker's end of one session stream: an inbox to read and an outbox that never blocks the caller."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._outbox: asyncio.Queue[FromWorkerMessage | None] = asyncio.Queue()
        self.peer: str = context.peer()

    def send(self, message: FromWorkerMessage) -> None:
        """Queue a message; order is kept."""
        self._outbox.put_nowait(message)

    def close(self) -> None:
        """End the stream after what is queued."""
        self._outbox.put_nowait(None)

    async def receive(self) -> ToWorkerMessage | None:
        """The next message, or None when the gateway ended the stream.  Unknown kinds are skipped."""
        while True:
            try:
                pb = await self._context.read()
            except grpc.aio.BaseError:
                # The call was cancelled, or this server stopped.
                return None
            if pb is grpc.aio.EOF:
                return None
            message = convert.to_worker_from_pb(pb)
            if message is not None:
                return message

    async def write_all(self) -> None:
        """Write the outbox until `close`."""
        while (message := await self._outbox.get()) is not None:
            await self._context.write(convert.from_worker_pb(message))


class WorkerApi(Protocol):
    """What a worker's front implements; methods raise typed errors."""

    async def session(self, stream: SessionStream) -> None:
        """Serve one session until its stream ends."""
        ...

    async def status(self) -> WorkerStatus: ...
    async def probe(self) -> ProbeResult: ...
    async def info(self) -> ServerInfo: ...


class _WorkerServicer(worker_pb2_grpc.WorkerServicer):
    def __init__(self, api: WorkerApi) -> None:
        self._api = api

    async def Session(self, request_iterator: Any, context: Any) -> None:
        stream = SessionStream(context)
        writer = asyncio.ensure_future(stream.write_all())
        reader = asyncio.ensure_future(answer(context, self._api.session(stream)))
        try:
            await asyncio.wait({writer, reader}, return_when=asyncio.FIRST_COMPLETED)
            if reader.done():
                reader.result()
        finally:
            for task in (writer, reader):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def GetStatus(self, request: worker_pb2.StatusRequest, context: Any) -> worker_pb2.WorkerStatus:
        return convert.status_to_pb(await answer(context, self._api.status()))

    async def Probe(self, request: worker_pb2.ProbeRequest, context: Any) -> worker_pb2.ProbeReply:
        return convert.probe_to_pb(await answer(context, self._api.probe()))

    async def GetInfo(self, request: worker_pb2.WorkerInfoRequest, context: Any) -> common_pb2.ServerInfo:
        return convert.info_to_pb(await answer(context, self._api.info()))


def add_worker(server: GrpcServer, api: WorkerApi) -> None:
    server.add(worker_pb2_grpc.add_WorkerServicer_to_server, _WorkerServicer(api), "octavo.v1.Worker")


class ControlStream:
    """The gateway's end of one session stream."""

    def __init__(self, stub: Any) -> None:
        self._call: Any = stub.Session()
        self._outbox: asyncio.Queue[worker_pb2.ToWorker] = asyncio.Queue()
        self._writer = asyncio.ensure_future(self._write_all())

    def send(self, message: ToWorkerMessage) -> None:
        """Queue a message; order is kept.  A broken stream shows in `receive`.

        Raises `InvalidInput` for a message with a value that the protocol cannot carry: the fault is the sender's
        alone, and the stream goes on.
        """
        try:
            self._outbox.put_nowait(convert.to_worker_pb(message))
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidInput(f"a value cannot be sent to a worker: {error}") from None

    async def _write_all(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                await self._call.write(await self._outbox.get())

    async def receive(self) -> FromWorkerMessage | None:
        """The next message, None when the worker ended the stream; raises the typed error of a broken one."""
        while True:
            try:
                pb = await self._call.read()
                if pb is grpc.aio.EOF:
                    if await self._call.code() != grpc.StatusCode.OK:
                        await self._call
                    return None
            except grpc.aio.AioRpcError as error:
                raise from_rpc_error(error) from None
            message = convert.from_worker_from_pb(pb)
            if message is not None:
                return message

    async def close(self) -> None:
        self._call.cancel()
        self._writer.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._writer


class WorkerClient:
    """Calls one worker's front; methods raise typed errors (`Unavailable` when nothing listens)."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = open_channel(address)
        self._stub: Any = worker_pb2_grpc.WorkerStub(self._channel)

    async def status(self, timeout_s: float = CALL_TIMEOUT_S) -> WorkerStatus:
        message = worker_pb2.StatusRequest()
        return convert.status_from_pb(await call(lambda: self._stub.GetStatus(message, timeout=timeout_s)))

    async def probe(self, timeout_s: float = 2.0) -> ProbeResult:
        message = worker_pb2.ProbeRequest()
        return convert.probe_from_pb(await call(lambda: self._stub.Probe(message, timeout=timeout_s)))

    async def info(self, timeout_s: float = CALL_TIMEOUT_S) -> ServerInfo:
        message = worker_pb2.WorkerInfoRequest()
        return convert.info_from_pb(await call(lambda: self._stub.GetInfo(message, timeout=timeout_s)))

    def open_stream(self) -> ControlStream:
        """Open a session's control stream."""
        return ControlStream(self._stub)

    async def close(self) -> None:
        await self._channel.close()
