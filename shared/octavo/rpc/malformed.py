"""`MalformedRequests`: a request that does not parse is the caller's fault, and the answer says so."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from octavo.errors import InvalidInput
from octavo.rpc.error import abort_with


class _Malformed:
    """Stands for a request that could not be parsed until its handler can answer."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    async def refuse(self, context: Any) -> None:
        message = f"body: the request does not parse ({self.reason}); must be the method's message, with UTF-8 texts"
        await abort_with(context, InvalidInput(message, param="body"))


class MalformedRequests(grpc.aio.ServerInterceptor):
    """Makes calls with one request answer bytes that are no such message with `InvalidInput`.

    Without it grpc answers INTERNAL, as if the server were at fault.
    """

    def __init__(self) -> None:
        self._handlers: dict[str, Any] = {}

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        known = self._handlers.get(details.method)
        if known is None:
            known = _guard(await continuation(details))
            if known is not None:
                self._handlers[details.method] = known
        return known


def _guard(handler: Any) -> Any:
    if handler is None or handler.request_streaming or handler.request_deserializer is None:
        return handler
    make = grpc.unary_stream_rpc_method_handler if handler.response_streaming else grpc.unary_unary_rpc_method_handler
    behaviour = _guarded(handler.unary_stream if handler.response_streaming else handler.unary_unary)
    return make(behaviour, _parser(handler.request_deserializer), handler.response_serializer)


def _parser(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def guarded(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError as error:
            return _Malformed(str(error))

    return guarded


def _guarded(behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    if inspect.isasyncgenfunction(behaviour):

        async def iterate(request: Any, context: Any) -> AsyncIterator[Any]:
            if isinstance(request, _Malformed):
                await request.refuse(context)
            async for item in behaviour(request, context):
                yield item

        return iterate

    async def run(request: Any, context: Any) -> Any:
        if isinstance(request, _Malformed):
            await request.refuse(context)
        return await behaviour(request, context)

    return run
