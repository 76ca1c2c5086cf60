"""`RouterService`: the Router and Registry calls over a `Fleet`, and the watch that finds dead workers."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from octavo.errors import OctavoError
from octavo.kv.record import WorkerRecord
from octavo.registry.memory import HEARTBEAT_PERIOD_S, Member
from octavo.router.fleet import Fleet
from octavo.router.metrics import RouterMetrics
from octavo.router.policy import Policy
from octavo.rpc import placement
from octavo.rpc.placement import Leg, Placement, PlaceRequest, ProbeResult, ServerInfo
from octavo.rpc.worker import WorkerClient
from octavo.version import __version__
from octavo.wire.message import LoadReport

logger = logging.getLogger(__name__)

WATCH_EVERY_S = 0.5
NUM_SPARES = 3

Probe = Callable[[str], Awaitable[ProbeResult]]


async def probe_worker(address: str) -> ProbeResult:
    """Ask the worker at `address` itself; raises a typed error when it does not answer."""
    client = WorkerClient(address)
    try:
        return await client.probe()
    finally:
        await client.close()


class RouterService:
    """Implements `octavo.rpc.router.RouterApi` and `RegistryApi`.

    `follow` is told the load addresses of the fleet whenever membership changes.
    """

    def __init__(
        self,
        policy: Policy,
        worker_timeout_s: float,
        info_json: str = "{}",
        *,
        rng: random.Random | None = None,
        probe: Probe = probe_worker,
        clock: Callable[[], float] = time.monotonic,
        follow: Callable[[set[str]], None] = lambda addresses: None,
    ) -> None:
        self.fleet_view = Fleet()
        self.metrics = RouterMetrics()
        self._policy = policy
        self._worker_timeout_s = worker_timeout_s
        self._info_json = info_json
        self._rng = rng or random.Random()
        self._probe = probe
        self._clock = clock
        self._follow = follow
        self._start_s = clock()

    # --- Router ---

    async def place(self, request: PlaceRequest) -> Placement:
        start_s = time.perf_counter()
        try:
            answer = self._choose(request)
        except OctavoError as error:
            self.metrics.refusals.labels(error.code).inc()
            raise
        self.metrics.place_s.observe(time.perf_counter() - start_s)
        self.metrics.placements.labels(answer.policy, answer.decode.worker.worker_id).inc()
        return answer

    def _choose(self, request: PlaceRequest) -> Placement:
        choices = self._policy.rank(request, self.fleet_view.candidates(request), self._rng)
        best, spares = choices[0], choices[1 : 1 + NUM_SPARES]
        key = (request.gateway_incarnation, request.request_id, request.attempt)
        record = best.candidate.record
        self.fleet_view.ledger.enter(key, record.worker_id, request.num_prompt_tokens, self._clock())
        return Placement(
            path="local",
            decode=Leg(record),
            spares=tuple(Leg(c.candidate.record) for c in spares),
            cost=best.cost,
            policy=self._policy.name,
        )

    async def fleet(self) -> placement.Fleet:
        now_s = self._clock()
        return placement.Fleet(self.fleet_view.members(now_s), now_s - self._start_s)

    async def info(self) -> ServerInfo:
        return ServerInfo("router", __version__, self._info_json)

    # --- Registry ---

    async def register(self, record: WorkerRecord) -> float:
        self.fleet_view.join(record, self._clock())
        logger.info("worker %s joined (%s, %s)", record.worker_id, ", ".join(record.served_names), record.grpc_address)
        self._membership_changed()
        return HEARTBEAT_PERIOD_S

    async def heartbeat(self, worker_id: str, incarnation: str, is_ready: bool) -> bool:
        return self.fleet_view.heartbeat(worker_id, incarnation, is_ready, self._clock())

    async def deregister(self, worker_id: str, incarnation: str) -> None:
        self.fleet_view.leave(worker_id, incarnation)
        logger.info("worker %s left", worker_id)
        self._membership_changed()

    # --- the rest ---

    def on_report(self, report: LoadReport) -> None:
        self.fleet_view.report(report, self._clock())

    async def watch(self) -> None:
        """Probe workers whose heartbeat is late, for ever; remove those that do not answer either."""
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            await self.check_overdue()

    async def check_overdue(self) -> None:
        """One round of the watch.  Only a late heartbeat *and* a failed probe make a worker dead."""
        late = self.fleet_view.overdue(self._worker_timeout_s, self._clock())
        await asyncio.gather(*(self._check(member) for member in late))

    async def _check(self, member: Member) -> None:
        record = member.record
        try:
            result = await self._probe(record.grpc_address)
        except OctavoError as error:
            reason = error.message
        else:
            if result.incarnation == record.incarnation:
                now_s = self._clock()
                self.fleet_view.registry.touch(record.worker_id, record.incarnation, result.is_live, now_s)
                return
            reason = "another incarnation answers"
        if member.age_s(self._clock()) <= self._worker_timeout_s:
            return
        logger.warning("worker %s is lost: heartbeat late and probe failed: %s", record.worker_id, reason)
        self.metrics.lost.inc()
        self.fleet_view.leave(record.worker_id, record.incarnation)
        self._membership_changed()

    def render_metrics(self) -> tuple[int, str, bytes]:
        members = self.fleet_view.members(self._clock())
        self.metrics.workers.set(len(members))
        self.metrics.ready_workers.set(sum(m.is_ready for m in members))
        self.metrics.in_flight.clear()
        for member in members:
            self.metrics.in_flight.labels(member.record.worker_id).set(member.num_in_flight)
        return self.metrics.render()

    def _membership_changed(self) -> None:
        self._follow(self.fleet_view.load_addresses())
