"""How every service process runs: one asyncio loop (uvloop where present), ended by SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable


class StopSignal:
    """Set by SIGTERM or SIGINT; a second signal also sets `is_urgent`."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._urgent = asyncio.Event()

    def install(self) -> None:
        """Handle the signals on the running loop (main thread)."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.set)

    def set(self) -> None:
        if self._event.is_set():
            self._urgent.set()
        self._event.set()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    @property
    def is_urgent(self) -> bool:
        return self._urgent.is_set()

    async def wait(self) -> None:
        await self._event.wait()


def run_service(main: Callable[[StopSignal], Awaitable[int]]) -> int:
    """Run `main(stop)` to its end on a fresh loop and return its exit code."""

    async def body() -> int:
        stop = StopSignal()
        stop.install()
        return await main(stop)

    try:
        import uvloop
    except ImportError:
        return asyncio.run(body())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(body())


async def until(condition: Callable[[], bool], timeout_s: float, every_s: float = 0.05) -> bool:
    """Wait until `condition()` holds, looking every `every_s`; returns whether it did within `timeout_s`."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= end_s:
            return False
        await asyncio.sleep(every_s)
    return True
