"""`Keeper`: keeps one service of a cluster alive, over as many lives as it takes."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from octavo.cli.backoff import Backoff
from octavo.cli.child import Child
from octavo.cli.cluster import ServicePlan
from octavo.obs.log import get_logger
from octavo.obs.notify import Failed, Listening, Notice, Progress, Ready

NUM_LAST_LINES = 20

log = get_logger(__name__)


class Screen(Protocol):
    """Where a keeper shows what its service does."""

    def phase(self, name: str, phase: str, fraction: float = -1.0, detail: str = "") -> None: ...

    def line(self, name: str, text: str) -> None: ...


class Keeper:
    """One service: started, watched, started again on the same ports when it dies, and ended.

    A life that ends before the service was ever ready is a failure of the cluster's start, not a death to recover from.
    `on_failure(message)` is called once for what cannot be recovered, `on_death()` before each further life.
    """

    def __init__(
        self,
        plan: ServicePlan,
        env: Mapping[str, str],
        screen: Screen,
        on_failure: Callable[[str], None],
        *,
        can_restart: bool,
        on_death: Callable[[], None] = lambda: None,
    ) -> None:
        self.plan = plan
        self.addresses: dict[str, str] = {}
        self.listening = asyncio.Event()
        self.ready = asyncio.Event()
        self._env = env
        self._screen = screen
        self._on_failure = on_failure
        self._can_restart = can_restart
        self._on_death = on_death
        self._backoff = Backoff()
        self._stopping = asyncio.Event()
        self._was_ready = False
        self._said = ""
        self._last_lines: deque[str] = deque(maxlen=NUM_LAST_LINES)
        self._child: Child | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, plan: ServicePlan | None = None) -> None:
        """Begin (with `plan`, where it changed)."""
        self.plan = plan or self.plan
        self._task = asyncio.create_task(self._keep())

    async def stop(self, limit_s: float) -> bool:
        """Ask the service to end, and kill it after `limit_s`.  Whether it ended by itself, with code 0."""
        self._stopping.set()
        if self._task is None:
            return True
        if self._child is not None and self._child.is_alive:
            self._screen.phase(self.plan.name, "stopping")
            self._child.send(signal.SIGTERM)
        _, pending = await asyncio.wait([self._task], timeout=limit_s)
        if pending:
            log.warning(f"{self.plan.name} did not end within {limit_s:g} s: killing it")
            self.kill()
        await self._task
        self._screen.phase(self.plan.name, "stopped", 1.0)
        return not pending

    def kill(self) -> None:
        """End the service at once."""
        self._stopping.set()
        if self._child is not None:
            self._child.send(signal.SIGKILL)

    @property
    def pid(self) -> int:
        return self._child.pid if self._child is not None and self._child.is_alive else 0

    async def _keep(self) -> None:
        while not self._stopping.is_set():
            began_s = time.monotonic()
            try:
                code = await self._live()
            except OSError as error:
                self._on_failure(f"{self.plan.name} cannot be started: {error}")
                return
            self.ready.clear()
            if self._stopping.is_set():
                return
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            if not self._was_ready or not self._can_restart:
                self._screen.phase(self.plan.name, "failed")
                self._on_failure(self._failure_text(how))
                return
            delay_s = self._backoff.after_death(time.monotonic() - began_s)
            log.warning(f"{self.plan.name} died ({how}); starting it again in {delay_s:g} s")
            self._screen.phase(self.plan.name, f"died ({how}), restarting")
            await self._pause(delay_s)
            self._on_death()

    async def _live(self) -> int:
        self._said = ""
        self._last_lines.clear()
        plan = self.plan.at(self.addresses)
        self._screen.phase(plan.name, "starting")
        env = {**self._env, **plan.environment()}
        self._child = await Child.start(plan.command(), env, self._hear, self._read)
        if self._stopping.is_set():
            self._child.send(signal.SIGTERM)
        return await self._child.wait()

    async def _pause(self, delay_s: float) -> None:
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([stopping], timeout=delay_s)
        stopping.cancel()

    def _hear(self, notice: Notice) -> None:
        if isinstance(notice, Listening):
            self.addresses.update(notice.addresses)
            self.listening.set()
        elif isinstance(notice, Progress):
            self._screen.phase(self.plan.name, notice.phase, notice.fraction, notice.detail)
        elif isinstance(notice, Ready):
            if self._was_ready:
                log.info(f"{self.plan.name} is ready again")
            self._was_ready = True
            self.ready.set()
            self._screen.phase(self.plan.name, "ready", 1.0)
        elif isinstance(notice, Failed):
            self._said = notice.message

    def _read(self, line: str) -> None:
        self._last_lines.append(line)
        self._screen.line(self.plan.name, line)

    def _failure_text(self, how: str) -> str:
        if self._said:
            return f"{self.plan.name}: {self._said}"
        last = "\n  ".join(self._last_lines)
        return f"{self.plan.name} ended ({how})" + (f"; its last lines:\n  {last}" if last else "")
