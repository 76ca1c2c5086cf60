"""`Link`: how control messages of transfers get from one worker to another; and the one within a process."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Protocol


class Link(Protocol):
    """Carries frames to an address; may lose, double or reorder them.  `octavo.wire.bulk.PeerLink` is one over ZMQ."""

    address: str

    def send(self, address: str, frame: bytes) -> None: ...

    def poll(self) -> list[bytes]: ...

    def forget(self, address: str) -> None: ...

    def descriptors(self) -> list[int]: ...

    def close(self) -> None: ...


_inboxes: dict[str, deque[bytes]] = {}
_numbers = itertools.count()


class LocalLink:
    """Between engines of one process, on one thread."""

    def __init__(self) -> None:
        self.address = f"local:{next(_numbers)}"
        self._inbox: deque[bytes] = deque()
        _inboxes[self.address] = self._inbox

    def send(self, address: str, frame: bytes) -> None:
        inbox = _inboxes.get(address)
        if inbox is not None:
            inbox.append(frame)

    def poll(self) -> list[bytes]:
        frames = list(self._inbox)
        self._inbox.clear()
        return frames

    def forget(self, address: str) -> None:
        return

    def descriptors(self) -> list[int]:
        return []

    def close(self) -> None:
        _inboxes.pop(self.address, None)
