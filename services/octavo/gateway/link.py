"""Links: one session per worker, opened when a placement first names it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from octavo.errors import Unavailable
from octavo.kv.record import WorkerRecord
from octavo.request import Emission, Request
from octavo.rpc.session import SilentRequest


class WorkerLink(Protocol):
    """An open session with one incarnation of a worker.  All verbs but `submit` return at once and never raise."""

    @property
    def record(self) -> WorkerRecord: ...

    @property
    def is_open(self) -> bool: ...

    async def submit(self, request: Request) -> None:
        """Hand over a request; returns when the worker accepted it, raises its typed refusal."""
        ...

    def abort(self, request_id: str, attempt: int, sequences: Sequence[int] = ()) -> None: ...

    def resend(self, request_id: str, attempt: int, from_index: dict[int, int]) -> None: ...

    def pause(self, request_id: str, attempt: int, is_paused: bool) -> None: ...

    async def close(self) -> None: ...


class LinkListener(Protocol):
    """Who hears what a link receives.  Called from the event loop; must not block or raise."""

    def on_emissions(self, link: WorkerLink, emissions: Sequence[Emission]) -> None: ...

    def on_heartbeat(self, link: WorkerLink, silent: Sequence[SilentRequest]) -> None: ...

    def on_lost(self, link: WorkerLink, reason: str) -> None: ...


LinkOpener = Callable[[WorkerRecord, LinkListener], Awaitable[WorkerLink]]


class Links:
    """All sessions of this gateway, at most one per worker incarnation.

    `opener` connects: it returns an open link or raises a typed error.
    """

    def __init__(self, opener: LinkOpener, listener: LinkListener) -> None:
        self._opener = opener
        self._listener = listener
        self._links: dict[tuple[str, str], WorkerLink] = {}
        self._opening: dict[tuple[str, str], asyncio.Task[WorkerLink]] = {}
        self._is_closed = False

    async def get(self, record: WorkerRecord) -> WorkerLink:
        """The open link to a worker; concurrent callers share one attempt to connect."""
        if self._is_closed:
            raise Unavailable("the gateway is shutting down")
        key = (record.worker_id, record.incarnation)
        link = self._links.get(key)
        if link is not None and link.is_open:
            return link
        task = self._opening.get(key)
        if task is None:
            task = asyncio.create_task(self._open(key, record), name=f"open-{record.worker_id}")
            self._opening[key] = task
            task.add_done_callback(lambda done: (self._opening.pop(key, None), done.cancelled() or done.exception()))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Close every session; running requests of them are aborted by their workers."""
        self._is_closed = True
        for task in list(self._opening.values()):
            task.cancel()
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(link.close() for link in links), return_exceptions=True)

    def check_integrity(self) -> None:
        for (worker_id, incarnation), link in self._links.items():
            assert link.record.worker_id == worker_id, "a link is filed under another worker"
            assert link.record.incarnation == incarnation, "a link is filed under another incarnation"

    async def _open(self, key: tuple[str, str], record: WorkerRecord) -> WorkerLink:
        for old in [k for k, link in self._links.items() if not link.is_open]:
            await self._links.pop(old).close()
        link = await self._opener(record, self._listener)
        self._links[key] = link
        return link
