"""`EndpointThread`: an endpoint on a thread of its own, for engines that must not wait for it."""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import deque
from collections.abc import Callable

from octavo.transfer.endpoint import TICK_S, Endpoint

logger = logging.getLogger(__name__)

BUSY_WAIT_S = 0.001
"""ZMQ's descriptors are edge-triggered: while bytes are awaited, look again soon whatever they say."""


def wait(endpoint: Endpoint, extra: list[int] | None = None, timeout_s: float = TICK_S) -> None:
    """Sleep until `endpoint` may have work, at most until its next tick."""
    timeout_s = BUSY_WAIT_S if endpoint.is_busy else timeout_s
    poller = select.poll()
    for fd in (*endpoint.descriptors(), *(extra or ())):
        poller.register(fd, select.POLLIN)
    poller.poll(timeout_s * 1000)


class EndpointThread:
    """Runs an endpoint until `close`.  `call(act)` has `act(endpoint)` run on its thread, in order, from any thread.

    An error of the endpoint ends the thread and is handed to `on_error`: the incarnation cannot go on without it.
    """

    def __init__(self, endpoint: Endpoint, on_error: Callable[[Exception], None]) -> None:
        self._endpoint, self._on_error = endpoint, on_error
        self._calls: deque[Callable[[Endpoint], None]] = deque()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="transfer", daemon=True)
        self._thread.start()

    def call(self, act: Callable[[Endpoint], None]) -> None:
        self._calls.append(act)
        os.eventfd_write(self._wake_fd, 1)

    def close(self) -> None:
        """Run the calls made so far, then end the thread and close the endpoint."""
        if not self._is_stopping:
            self._is_stopping = True
            os.eventfd_write(self._wake_fd, 1)
            self._thread.join()
            os.close(self._wake_fd)

    def _run(self) -> None:
        try:
            while True:
                is_last = self._is_stopping
                while self._calls:
                    self._calls.popleft()(self._endpoint)
                if is_last:
                    break
                if not self._endpoint.step() and not self._calls:
                    wait(self._endpoint, [self._wake_fd])
                    self._drain_wake()
        except Exception as error:
            logger.exception("the transfer thread failed")
            self._on_error(error)
        finally:
            self._endpoint.close()

    def _drain_wake(self) -> None:
        try:
            os.eventfd_read(self._wake_fd)
        except BlockingIOError:
            return
