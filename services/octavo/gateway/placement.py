"""Placement: asks the routers, the preferred one first, and goes on to the next when one does not answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from octavo.errors import DeadlineExceeded, OctavoError, Unavailable
from octavo.kv.record import WorkerRecord
from octavo.rpc.placement import Fleet, FleetMember, Placement, PlaceRequest, ServerInfo

T = TypeVar("T")
logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = 2.0


class RouterApi(Protocol):
    """Calls of one router.  Each raises a typed error; `Unavailable` or `DeadlineExceeded` when it does not answer."""

    address: str

    async def place(self, request: PlaceRequest) -> Placement: ...

    async def fleet(self) -> Fleet: ...

    async def info(self) -> ServerInfo: ...

    async def close(self) -> None: ...


class Routers:
    """The routers of this gateway as one: failover in the given order, and the last fleet that one of them told.

    A router that cannot help goes to the back of the order, so that a dead one costs one time-out, not one per request.
    """

    def __init__(self, routers: Sequence[RouterApi], call_timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._order = list(routers)
        self._timeout_s = call_timeout_s
        self._fleet: tuple[FleetMember, ...] = ()
        self._is_out_of_touch = False

    @property
    def records(self) -> list[WorkerRecord]:
        """Records of the ready workers of the last known fleet."""
        return [member.record for member in self._fleet if member.is_ready]

    async def place(self, request: PlaceRequest) -> Placement:
        """The first answer of a router; its refusal (BUSY, no worker) is the answer too."""
        return await self._first(lambda router: router.place(request))

    async def refresh(self) -> list[WorkerRecord]:
        """Ask for the fleet.  With no router to be reached, the last known fleet stays."""
        try:
            fleet = await self._first(lambda router: router.fleet())
        except OctavoError as error:
            # Asked several times a second: only the change is worth a line.
            (logger.debug if self._is_out_of_touch else logger.warning)("no router told the fleet: %s", error)
            self._is_out_of_touch = True
        else:
            self._fleet = fleet.members
            self._is_out_of_touch = False
        return self.records

    async def info(self) -> ServerInfo:
        return await self._first(lambda router: router.info())

    async def close(self) -> None:
        await asyncio.gather(*(router.close() for router in self._order), return_exceptions=True)

    async def _first(self, call: Callable[[RouterApi], Awaitable[T]]) -> T:
        failures: list[str] = []
        for router in list(self._order):
            try:
                return await asyncio.wait_for(call(router), self._timeout_s)
            except (TimeoutError, DeadlineExceeded):
                failures.append(f"router {router.address} gave no answer within {self._timeout_s:g} s")
            except Unavailable as error:
                # Not reached, or it knows no worker: another router may know one.
                failures.append(f"router {router.address}: {error.message}")
            self._order.remove(router)
            self._order.append(router)
        raise Unavailable("; ".join(failures) or "no router is configured", retry_after_s=1.0)
