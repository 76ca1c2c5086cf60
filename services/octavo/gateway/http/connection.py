"""Clients that go away: work stops as soon as the connection does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from octavo.errors import Aborted

T = TypeVar("T")


async def until_disconnect(receive: Receive) -> None:
    """Return when the client has closed the connection.  The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T], discard: Callable[[T], object]) -> T:
    """The result of `work`, which is cancelled when the client disconnects or the caller is cancelled.

    A result that nobody is left to take goes to `discard`.  Raises `Aborted` after a disconnect.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(until_disconnect(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Aborted("the client disconnected")
        return task.result()
    except BaseException:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled() and task.exception() is None:
            discard(task.result())
        raise
    finally:
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)


class EventStream(Response):
    """An ASGI answer of server-sent events.

    `events` yields encoded events.  `release` is called once when the answer is over: events exhausted, client gone, or
    answer cancelled by the server.
    """

    def __init__(self, events: AsyncIterator[bytes], headers: dict[str, str], release: Callable[[], object]) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self.init_headers({"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **headers})
        self._events = events
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = asyncio.ensure_future(self._write(send))
        gone = asyncio.ensure_future(until_disconnect(receive))
        try:
            await asyncio.wait({writer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if writer.done():
                writer.result()
        finally:
            self._release()
            writer.cancel()
            gone.cancel()
            await asyncio.gather(writer, gone, return_exceptions=True)

    async def _write(self, send: Send) -> None:
        # Not the response's own length header: the body has none.
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for event in self._events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
