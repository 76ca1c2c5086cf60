"""`RequestStream`: the outputs of one request as an async iterator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from octavo.errors import OctavoError
from octavo.llm.output import RequestOutput


class RequestStream:
    """Cumulative outputs of one request; ends after the finished one.

    Only the newest output is kept: a slow reader sees fewer, larger steps and loses nothing.  Belongs to the event
    loop that made it.  Closing it before the end (or cancelling the task that reads it through
    `AsyncLLM.generate`) aborts the request.
    """

    def __init__(self, request_id: str, abort: Callable[[str], None]) -> None:
        self.request_id = request_id
        self._abort = abort
        self._newest: RequestOutput | None = None
        self._error: OctavoError | None = None
        self._has_ended = False
        self._changed = asyncio.Event()

    def put(self, output: RequestOutput) -> None:
        """Take the newest output; ignored once the stream has ended."""
        if not self._has_ended:
            self._newest = output
            self._has_ended = output.finished
            self._changed.set()

    def fail(self, error: OctavoError) -> None:
        """End the stream: its reader gets `error`."""
        if not self._has_ended:
            self._error = error
            self._has_ended = True
            self._changed.set()

    def close(self) -> None:
        """End the stream; a request that still runs is aborted."""
        if not self._has_ended:
            self._has_ended = True
            self._changed.set()
            self._abort(self.request_id)

    def __aiter__(self) -> RequestStream:
        return self

    async def __anext__(self) -> RequestOutput:
        while True:
            if self._newest is not None:
                output, self._newest = self._newest, None
                return output
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._has_ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
