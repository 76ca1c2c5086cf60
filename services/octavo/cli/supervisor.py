"""`Supervisor`: the cluster that `octavo up` runs, from the first process to the last.

Order of start: router, then workers and gateway, which get its address.  Order of end: gateway (it drains its
streams, for which it needs the others), workers, router.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterable, Mapping

import psutil

from octavo.cli.cluster import ClusterPlan, ServicePlan
from octavo.cli.keeper import Keeper, Screen
from octavo.cli.lifeline import adopt_orphans
from octavo.obs.log import get_logger

WORKER_STOP_S = 15.0
ROUTER_STOP_S = 5.0
GATEWAY_GRACE_S = 5.0
ORPHAN_LIMIT_S = 3.0

log = get_logger(__name__)


class Supervisor:
    """Runs one cluster.  `run()` returns the exit code once no process is left: 0 after a signal, 1 after a failure."""

    def __init__(
        self,
        plan: ClusterPlan,
        env: Mapping[str, str],
        screen: Screen,
        *,
        can_restart: bool = True,
        startup_timeout_s: float = 1800.0,
        drain_s: float = 30.0,
        on_ready: Callable[[Mapping[str, str]], None] = lambda addresses: None,
        on_failure: Callable[[str], None] = lambda message: None,
    ) -> None:
        def keeper(service: ServicePlan) -> Keeper:
            return Keeper(
                service, env, screen, self._fail, can_restart=can_restart, on_death=self._end_orphans_of_the_dead
            )

        self.router = keeper(plan.router)
        self.workers = [keeper(worker) for worker in plan.workers]
        self.gateway = keeper(plan.gateway)
        self._startup_timeout_s = startup_timeout_s
        self._drain_s = drain_s
        self._on_ready = on_ready
        self._on_failure = on_failure
        self._failure = ""
        self._stop = asyncio.Event()
        self._num_signals = 0

    @property
    def keepers(self) -> list[Keeper]:
        return [self.router, *self.workers, self.gateway]

    async def run(self) -> int:
        adopt_orphans()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        try:
            await self._start_within(self._startup_timeout_s)
            await self._stop.wait()
            if self._failure:
                self._on_failure(self._failure)
            await self._end()
        finally:
            for keeper in self.keepers:
                keeper.kill()
            await self._end_orphans()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
        return 1 if self._failure or self._num_signals > 1 else 0

    async def _start(self) -> None:
        self.router.start()
        await self.router.listening.wait()
        address = self.router.addresses["grpc"]
        for keeper in (*self.workers, self.gateway):
            keeper.start(keeper.plan.with_router(address))
        for keeper in self.keepers:
            await keeper.ready.wait()
        self._on_ready(self.gateway.addresses)

    async def _start_within(self, limit_s: float) -> None:
        """Start all, until all is ready, a service failed, a signal came, or the time is over."""
        starting = asyncio.create_task(self._start())
        stopping = asyncio.create_task(self._stop.wait())
        done, _ = await asyncio.wait([starting, stopping], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            late = ", ".join(keeper.plan.name for keeper in self.keepers if not keeper.ready.is_set())
            self._fail(f"not ready within --startup-timeout-s {limit_s:g}: {late}")
        stopping.cancel()
        if starting in done:
            starting.result()
        else:
            starting.cancel()

    async def _end(self) -> None:
        began_s = time.monotonic()
        await self.gateway.stop(self._drain_s + GATEWAY_GRACE_S)
        await asyncio.gather(*(worker.stop(WORKER_STOP_S) for worker in self.workers))
        await self.router.stop(ROUTER_STOP_S)
        log.debug("all services ended", seconds=round(time.monotonic() - began_s, 2))

    def _end_orphans_of_the_dead(self) -> None:
        """End the processes that a dead service left to us: a service and its engine die together."""
        known = {keeper.pid for keeper in self.keepers}
        orphans = [child for child in psutil.Process().children() if child.pid not in known]
        _kill_all(orphans)
        psutil.wait_procs(orphans, timeout=0.1)

    async def _end_orphans(self) -> None:
        """Wait for descendants whose service is gone; kill what does not end by itself."""
        deadline_s = time.monotonic() + ORPHAN_LIMIT_S
        while orphans := psutil.Process().children(recursive=True):
            is_late = time.monotonic() > deadline_s
            _, alive = psutil.wait_procs(orphans, timeout=0)
            if is_late:
                _kill_all(alive)
            await asyncio.sleep(0.02)

    def _fail(self, message: str) -> None:
        self._failure = self._failure or message
        self._stop.set()

    def _on_signal(self) -> None:
        self._num_signals += 1
        self._stop.set()
        if self._num_signals == 1:
            log.info("stopping; a second signal ends everything at once")
            return
        log.warning("second signal: ending everything at once")
        for keeper in self.keepers:
            keeper.kill()


def _kill_all(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
