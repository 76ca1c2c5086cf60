"""Ctrl-C in a program that drives an engine itself: it waits for the end of the step that runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class _Gate:
    """A handler of SIGINT that keeps the first signal back and lets the second through."""

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        self.handler = handler
        self.is_pending = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.is_pending:
            self.is_pending = False
            self.handler(number, frame)
        else:
            self.is_pending = True


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold a SIGINT back until the block has ended, so that it cannot stop an engine halfway through a change.

    A second one, for a block that does not end, interrupts it.  Only the main thread gets signals, so in another one,
    or inside another such block, this does nothing; nor where no Python handler would raise.
    """
    current = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(current) or isinstance(current, _Gate):
        yield
        return
    gate = _Gate(current)
    signal.signal(signal.SIGINT, gate)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, current)
        if gate.is_pending:
            current(signal.SIGINT, None)
