"""The public Octavo service: the server adaptor."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Protocol

from octavo.pb import common_pb2, public_pb2, public_pb2_grpc
from octavo.rpc import convert, convert_public, public
from octavo.rpc.error import answer
from octavo.rpc.placement import ServerInfo
from octavo.rpc.server import GrpcServer

SERVICE = "octavo.v1.Octavo"


class PublicApi(Protocol):
    """What a gateway implements; methods raise typed errors.  The generators are closed when the client goes."""

    def generate(self, call: public.GenerateCall) -> AsyncGenerator[public.Chunk, None]: ...

    def chat(self, call: public.ChatCall) -> AsyncGenerator[public.Chunk, None]: ...

    async def models(self) -> list[public.ModelInfo]: ...

    async def tokenize(self, model: str, text: str, add_special_tokens: bool) -> tuple[list[int], int]:
        """Token ids, and the longest sequence the model takes."""
        ...

    async def detokenize(self, model: str, ids: list[int], skip_special_tokens: bool) -> str: ...

    async def abort(self, request_id: str) -> bool: ...

    async def health(self) -> public.Health: ...

    async def info(self) -> ServerInfo: ...


class _Servicer(public_pb2_grpc.OctavoServicer):
    def __init__(self, api: PublicApi) -> None:
        self._api = api

    async def Generate(self, request: public_pb2.GenerateRequest, context: Any) -> None:
        await _write_all(context, lambda: self._api.generate(convert_public.generate_from_pb(request)))

    async def Chat(self, request: public_pb2.ChatRequest, context: Any) -> None:
        await _write_all(context, lambda: self._api.chat(convert_public.chat_from_pb(request)))

    async def ListModels(self, request: public_pb2.ListModelsRequest, context: Any) -> public_pb2.ListModelsReply:
        models = await answer(context, self._api.models())
        reply = public_pb2.ListModelsReply()
        for model in models:
            reply.models.add(id=model.id, max_model_len=model.max_model_len, root=model.root)
        return reply

    async def Tokenize(self, request: public_pb2.TokenizeRequest, context: Any) -> public_pb2.TokenizeReply:
        adds = request.add_special_tokens if request.HasField("add_special_tokens") else True
        ids, limit = await answer(context, self._api.tokenize(request.model, request.text, adds))
        return public_pb2.TokenizeReply(ids=ids, max_model_len=limit)

    async def Detokenize(self, request: public_pb2.DetokenizeRequest, context: Any) -> public_pb2.DetokenizeReply:
        skips = request.skip_special_tokens if request.HasField("skip_special_tokens") else False
        text = await answer(context, self._api.detokenize(request.model, list(request.ids), skips))
        return public_pb2.DetokenizeReply(text=text)

    async def Abort(self, request: public_pb2.AbortRequest, context: Any) -> public_pb2.AbortReply:
        return public_pb2.AbortReply(was_live=await answer(context, self._api.abort(request.request_id)))

    async def GetHealth(self, request: public_pb2.HealthRequest, context: Any) -> public_pb2.HealthReply:
        health = await answer(context, self._api.health())
        return public_pb2.HealthReply(is_healthy=health.is_healthy, is_ready=health.is_ready, detail=health.detail)

    async def GetInfo(self, request: public_pb2.InfoRequest, context: Any) -> common_pb2.ServerInfo:
        return convert.info_to_pb(await answer(context, self._api.info()))


async def _write_all(context: Any, start: Callable[[], AsyncGenerator[public.Chunk, None]]) -> None:
    async def write() -> None:
        # Closed here and not by the garbage collector: a client that goes away must end its request at once.
        async with aclosing(start()) as chunks:
            async for chunk in chunks:
                await context.write(convert_public.chunk_to_pb(chunk))

    await answer(context, write())


def add_public(server: GrpcServer, api: PublicApi) -> None:
    server.add(public_pb2_grpc.add_OctavoServicer_to_server, _Servicer(api), SERVICE)
