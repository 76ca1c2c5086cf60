"""The one map between typed errors and gRPC statuses.

A typed error becomes its status code, its message, and an `octavo.v1.Error` in the trailing metadata, from which the
other side makes the same typed error again.  A status without that detail (a broken connection, a deadline) is mapped
by its code.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NoReturn, TypeVar

import grpc

from octavo.errors import (
    Aborted,
    BodyTooLarge,
    Busy,
    DeadlineExceeded,
    InternalError,
    InvalidInput,
    OctavoError,
    Unauthorized,
    Unavailable,
    from_detail,
)
from octavo.rpc.convert import error_from_bytes, error_to_bytes

T = TypeVar("T")

DETAIL_KEY = "octavo-error-bin"
_TOO_LARGE = "message larger than max"
"""What grpc says, under the status of a busy server, of a message that either side will not take."""
logger = logging.getLogger(__name__)

_BY_STATUS: dict[grpc.StatusCode, type[OctavoError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidInput,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Aborted,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Busy,
    grpc.StatusCode.UNAUTHENTICATED: Unauthorized,
}


async def abort_with(context: grpc.aio.ServicerContext, error: OctavoError) -> NoReturn:
    """End a call with the status of `error` and its detail in the trailing metadata."""
    status = grpc.StatusCode[error.grpc_status]
    await context.abort(status, error.message, ((DETAIL_KEY, error_to_bytes(error.detail())),))
    raise AssertionError("context.abort returns never")


async def answer(context: grpc.aio.ServicerContext, work: Awaitable[T]) -> T:
    """Await a unary handler; typed errors become statuses, anything else a logged INTERNAL without details."""
    try:
        return await work
    except OctavoError as error:
        await abort_with(context, error)
    except Exception:
        logger.exception("a call handler failed")
        await abort_with(context, InternalError("internal error; see this service's log"))


async def stream(context: grpc.aio.ServicerContext, items: AsyncIterator[T]) -> AsyncIterator[T]:
    """Like `answer`, for a handler that yields."""
    try:
        async for item in items:
            yield item
    except OctavoError as error:
        await abort_with(context, error)
    except Exception:
        logger.exception("a stream handler failed")
        await abort_with(context, InternalError("internal error; see this service's log"))


def from_rpc_error(error: grpc.aio.AioRpcError) -> OctavoError:
    """The typed error behind a failed call."""
    for key, value in error.trailing_metadata() or ():
        if key == DETAIL_KEY and isinstance(value, bytes):
            return from_detail(error_from_bytes(value))
    details = error.details() or error.code().name.lower()
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details:
        return BodyTooLarge(f"body: {details}", param="body")
    return _BY_STATUS.get(error.code(), InternalError)(details)


async def call(make_call: Callable[[], Awaitable[T]]) -> T:
    """Await a client call; raise the typed error instead of `AioRpcError`."""
    try:
        return await make_call()
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from None
