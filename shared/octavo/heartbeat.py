"""The engine's heartbeat: three 64-bit words in a memfd that the engine process writes and the front reads.

Words: monotonic time of the last beat in ns, phase number, and monotonic time by which the phase must end (0: none).
Each word is written by one aligned 8-byte store, so a reader never sees half of one.
"""

from __future__ import annotations

import mmap
import os
import time

PHASES = ("starting", "loading", "warmup", "self_test", "ready")
SIZE = 24
BEAT_PERIOD_S = 0.5
"""An idle engine beats this often."""


class HeartbeatWriter:
    """The engine's side of an inherited memfd."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, SIZE)
        self._words = memoryview(self._map).cast("q")

    def beat(self) -> None:
        self._words[0] = time.monotonic_ns()

    def enter(self, phase: str, limit_s: float) -> None:
        """Declare a phase and how long it may take in all (0: no limit); also a beat.

        Declaring the current phase again is only a beat.  Unknown phases count as `loading`.
        """
        number = PHASES.index(phase) if phase in PHASES else 1
        if number != self._words[1]:
            self._words[2] = time.monotonic_ns() + int(limit_s * 1e9) if limit_s > 0 else 0
            self._words[1] = number
        self.beat()


class HeartbeatView:
    """The front's side; makes the memfd that the engine process inherits."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("octavo-heartbeat", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, SIZE)
        self._map = mmap.mmap(self.fd, SIZE)
        self._words = memoryview(self._map).cast("q")
        self._words[0] = time.monotonic_ns()

    @property
    def phase(self) -> str:
        return PHASES[self._words[1]]

    def age_s(self) -> float:
        """Seconds since the last beat."""
        return max(0.0, (time.monotonic_ns() - self._words[0]) / 1e9)

    def is_overdue(self) -> bool:
        """Whether the declared phase has run past its limit."""
        deadline = self._words[2]
        return deadline > 0 and time.monotonic_ns() > deadline

    def close(self) -> None:
        self._words.release()
        self._map.close()
        os.close(self.fd)
