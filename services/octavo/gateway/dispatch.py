"""`Dispatcher`: brings a request to a worker that accepts it."""

from __future__ import annotations

import asyncio
import logging

from octavo.errors import (
    Busy,
    DeadlineExceeded,
    InternalError,
    OctavoError,
    StaleAttempt,
    Unavailable,
    UpstreamLost,
)
from octavo.gateway.link import Links, WorkerLink
from octavo.gateway.placement import Routers
from octavo.gateway.stream import Stream
from octavo.gateway.streams import Streams
from octavo.kv.record import WorkerRecord
from octavo.rpc.placement import Placement, PlaceRequest

logger = logging.getLogger(__name__)

MAX_TRIES = 3
SUBMIT_TIMEOUT_S = 5.0
ELSEWHERE = (Busy, Unavailable, StaleAttempt, DeadlineExceeded, InternalError)
"""Refusals after which another worker may do; anything else is the request's own fault."""


class Dispatcher:
    """Places streams: the placement's worker, then its spares, then a new placement without those that refused."""

    def __init__(self, routers: Routers, links: Links, streams: Streams, gateway_incarnation: str) -> None:
        self._routers = routers
        self._links = links
        self._streams = streams
        self._incarnation = gateway_incarnation

    async def dispatch(self, stream: Stream, model: str, chain: bytes) -> tuple[Placement, WorkerRecord]:
        """Return once a worker accepted the stream's request, with its placement and record.

        Raises the last refusal after `MAX_TRIES` workers, or what the router says when it has none to offer.
        """
        exclude: list[str] = []
        refusal: OctavoError | None = None
        while len(exclude) < MAX_TRIES:
            try:
                placement = await self._routers.place(self._ask(stream, model, chain, exclude))
            except Unavailable as error:
                # The router's "nobody else" says less than why those that it had named refused.
                raise refusal or error from None
            tried = len(exclude)
            for record in [placement.decode.worker, *(leg.worker for leg in placement.spares)]:
                if record.worker_id in exclude or len(exclude) >= MAX_TRIES:
                    continue
                try:
                    await self._submit(stream, record)
                except ELSEWHERE as error:
                    logger.info("worker %s refused %s: %s", record.worker_id, stream.request_id, error)
                    refusal = error
                    exclude.append(record.worker_id)
                else:
                    return placement, record
            if len(exclude) == tried:
                break
        raise refusal or Unavailable(f"no worker serves {model} at the moment")

    async def _submit(self, stream: Stream, record: WorkerRecord) -> None:
        attempt = stream.request.attempt + 1
        link: WorkerLink | None = None
        try:
            async with asyncio.timeout(SUBMIT_TIMEOUT_S):
                link = await self._links.get(record)
                self._streams.place(stream, link, attempt)
                await link.submit(stream.request)
        except TimeoutError:
            if link is not None:
                link.abort(stream.request_id, attempt)
            message = f"worker {record.worker_id} did not answer within {SUBMIT_TIMEOUT_S:g} s"
            raise Unavailable(message, retry_after_s=1.0) from None
        if not link.is_open:
            raise UpstreamLost(f"worker {record.worker_id} was lost while it took the request")
        stream.is_accepted = True

    def _ask(self, stream: Stream, model: str, chain: bytes, exclude: list[str]) -> PlaceRequest:
        request = stream.request
        return PlaceRequest(
            request_id=request.request_id,
            attempt=request.attempt + 1,
            gateway_incarnation=self._incarnation,
            model=model,
            num_prompt_tokens=len(request.prompt_token_ids),
            namespace=request.namespace,
            chain=chain,
            max_tokens=request.params.max_tokens or 0,
            n=request.params.n,
            priority=request.priority,
            deadline_unix_s=request.deadline_unix_s,
            exclude=tuple(exclude),
        )
