"""`MemoryConnector`: the base of connectors that see the producer's memory (`local`, `shm`)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from octavo.transfer.connector.peer import (
    CACHE_BYTES,
    CHUNK_BYTES,
    POLL_BYTES,
    Copied,
    Event,
    PageRead,
    PeerConnector,
    Progressed,
    ReadFailed,
)
from octavo.transfer.machine.noun import Reason
from octavo.transfer.message import Terms


class View(NamedTuple):
    """A producer's memory as seen from here: regions `[num_blocks, block_bytes]` per shard, and its epoch table."""

    regions: Sequence[np.ndarray]
    epochs: np.ndarray


class MemoryConnector(PeerConnector):
    """Copies pages one after the other."""

    def __init__(self) -> None:
        self._reads: dict[tuple[int, int], PageRead] = {}
        self._copies: dict[tuple[int, int], Iterator[Event]] = {}

    @abstractmethod
    def view(self, terms: Terms) -> View | Reason | None:
        """The producer's memory; None while it is being attached; a reason when it cannot be."""

    def read(self, page: PageRead) -> None:
        self._reads[page.pull_id, page.read] = page

    def poll(self) -> list[Event]:
        out: list[Event] = []
        num_left = POLL_BYTES
        for key, page in list(self._reads.items()):
            copy = self._copies.get(key)
            if copy is None:
                view = self.view(page.source)
                if view is None:
                    continue
                if isinstance(view, Reason):
                    del self._reads[key]
                    out.append(ReadFailed(page.pull_id, page.read, view))
                    continue
                copy = self._copies[key] = self._copy(page, view)
            for event in copy:
                out.append(event)
                if not isinstance(event, Progressed):
                    del self._reads[key], self._copies[key]
                    break
                num_left -= event.num_bytes
                if num_left <= 0:
                    return out
        return out

    def close(self, pull_id: int | None = None) -> list[Event]:
        keys = [key for key in self._reads if pull_id is None or key[0] == pull_id]
        for key in keys:
            del self._reads[key]
            self._copies.pop(key, None)
        return [ReadFailed(*key, Reason.CANCELLED) for key in keys]

    @property
    def is_busy(self) -> bool:
        return bool(self._reads)

    @staticmethod
    def _copy(page: PageRead, view: View) -> Iterator[Event]:
        since = 0
        for run in page.runs:
            source = view.regions[run.source_shard][page.page.block]
            for start in range(0, run.num_bytes, CACHE_BYTES):
                if not page.accepts():
                    yield ReadFailed(page.pull_id, page.read, Reason.CANCELLED)
                    return
                size = min(CACHE_BYTES, run.num_bytes - start)
                target = page.target(run, start, size)
                np.copyto(target, source[run.source_offset + start : run.source_offset + start + size])
                page.wrote(run, target)
                since += size
                if since >= CHUNK_BYTES:
                    yield Progressed(page.pull_id, page.read, since)
                    since = 0
        if since:
            yield Progressed(page.pull_id, page.read, since)
        digests = page.digests()
        yield Copied(page.pull_id, page.read, digests, int(view.epochs[page.slot]))
