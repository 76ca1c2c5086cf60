"""The public Octavo service: the asyncio client stub, speaking plain structs and raising typed errors."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import grpc

from octavo.pb import public_pb2, public_pb2_grpc
from octavo.rpc import convert, convert_public, public
from octavo.rpc.channel import open_channel
from octavo.rpc.error import call, from_rpc_error
from octavo.rpc.placement import ServerInfo


class PublicClient:
    """Calls one gateway.  Methods raise the error that the gateway raised, or `Unavailable`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = open_channel(address)
        self._stub: Any = public_pb2_grpc.OctavoStub(self._channel)

    async def generate(self, request: public.GenerateCall) -> AsyncGenerator[public.Chunk, None]:
        stream = self._stub.Generate(convert_public.generate_to_pb(request))
        async for chunk in _read(stream):
            yield chunk

    async def chat(self, request: public.ChatCall) -> AsyncGenerator[public.Chunk, None]:
        stream = self._stub.Chat(convert_public.chat_to_pb(request))
        async for chunk in _read(stream):
            yield chunk

    async def models(self, timeout_s: float) -> list[public.ModelInfo]:
        reply = await call(lambda: self._stub.ListModels(public_pb2.ListModelsRequest(), timeout=timeout_s))
        return [public.ModelInfo(m.id, m.max_model_len, m.root) for m in reply.models]

    async def tokenize(self, model: str, text: str, add_special_tokens: bool, timeout_s: float) -> list[int]:
        message = convert_public.tokenize_to_pb(model, text, add_special_tokens)
        return list((await call(lambda: self._stub.Tokenize(message, timeout=timeout_s))).ids)

    async def detokenize(self, model: str, ids: list[int], skip_special_tokens: bool, timeout_s: float) -> str:
        message = convert_public.detokenize_to_pb(model, ids, skip_special_tokens)
        return str((await call(lambda: self._stub.Detokenize(message, timeout=timeout_s))).text)

    async def abort(self, request_id: str, timeout_s: float) -> bool:
        message = convert_public.abort_to_pb(request_id)
        return bool((await call(lambda: self._stub.Abort(message, timeout=timeout_s))).was_live)

    async def health(self, timeout_s: float) -> public.Health:
        reply = await call(lambda: self._stub.GetHealth(public_pb2.HealthRequest(), timeout=timeout_s))
        return public.Health(reply.is_healthy, reply.is_ready, reply.detail)

    async def info(self, timeout_s: float) -> ServerInfo:
        return convert.info_from_pb(await call(lambda: self._stub.GetInfo(public_pb2.InfoRequest(), timeout=timeout_s)))

    async def close(self) -> None:
        await self._channel.close()


async def _read(stream: Any) -> AsyncGenerator[public.Chunk, None]:
    try:
        async for pb in stream:
            yield convert_public.chunk_from_pb(pb)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from None
    finally:
        # Leaving the iteration early cancels the request at the server.
        stream.cancel()
