"""`PeerConnector`: the base of connectors that copy pages from another worker's memory.

A connector moves bytes and nothing else: ids, leases, epochs, retries and verdicts belong to the machine.  It is driven
by one thread through `poll`, which does a bounded piece of work, so the same thread answers probes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np

from octavo.transfer.digest import DIGEST_BYTES, Hasher, digest
from octavo.transfer.machine.noun import Reason
from octavo.transfer.message import Page, Terms
from octavo.transfer.page_map import PageMap, Run

CHUNK_BYTES = 1 << 20
"""Most bytes of a frame, and of what is copied between two looks at the rest of the world."""
POLL_BYTES = 4 << 20
"""Most bytes that one `poll` moves: under 2 ms at 3 GB/s."""
CACHE_BYTES = 256 << 10
"""Copied at a time, so that the digest reads what the copy has just put in the cache (1 MiB: a tenth slower)."""


@dataclass(frozen=True, slots=True)
class Progressed:
    pull_id: int
    read: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Copied:
    """The page lies in our blocks; `digests` are over the destination, `epoch` was read after the copy."""

    pull_id: int
    read: int
    digests: bytes
    epoch: int


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """The read is over and writes nothing more."""

    pull_id: int
    read: int
    reason: Reason


Event = Progressed | Copied | ReadFailed


class Gate(Protocol):
    """What a connector that serves bytes asks of the producer."""

    def begin_read(self, transfer_id: str, pull_id: int, epoch: int, block: int) -> bool:
        """May this block be read for this pull?  True begins a read that `end_read` must end."""

    def end_read(self, transfer_id: str) -> None: ...

    def epoch_of(self, slot: int) -> int: ...


@dataclass(slots=True)
class PageRead:
    """One page to bring: what to read (`page`, `units`), and where to put it (`blocks`: ours, from the page's first).

    `accepts()` says before each chunk whether it may still be written.
    """

    transfer_id: str
    pull_id: int
    read: int
    epoch: int
    slot: int
    page: Page
    units: tuple[int, ...]
    source: Terms
    page_map: PageMap
    blocks: Sequence[int]
    regions: Sequence[np.ndarray]
    accepts: Callable[[], bool]
    num_bytes: int = 0
    hashers: dict[int, Hasher] = field(default_factory=dict)

    @property
    def runs(self) -> list[Run]:
        return self.page_map.runs(self.page.index, self.units)

    def target(self, run: Run, start: int, num_bytes: int) -> np.ndarray:
        """Where bytes `start` to `start + num_bytes` of a run go."""
        offset = run.target_offset + start
        return self.regions[run.target_shard][self.blocks[run.block_step], offset : offset + num_bytes]

    def wrote(self, run: Run, target: np.ndarray) -> None:
        """A chunk was written in full: take it into the digest while it is in the cache."""
        self.num_bytes += target.size
        if self.page_map.is_whole:
            self.hashers.setdefault(run.target_shard, Hasher()).update(target)

    def digests(self) -> bytes:
        """The page's digests with those of what was read taken over the destination."""
        if self.page_map.is_whole:
            return b"".join(self.hashers[shard].digest() for shard in sorted(self.hashers))
        out = bytearray(self.page.digests)
        for unit in self.page_map.units(self.page.index, self.units):
            at = unit.number * DIGEST_BYTES
            out[at : at + DIGEST_BYTES] = digest(self.target(unit.run, 0, unit.run.num_bytes))
        return bytes(out)


def page_digests(page_map: PageMap, page: Page, regions: Sequence[np.ndarray]) -> bytes:
    """The producer's digests of a page, in the units and the order of this consumer."""
    if page_map.is_whole:
        return b"".join(digest(region[page.block]) for region in regions)
    block = [region[page.block] for region in regions]
    return b"".join(
        digest(block[u.run.source_shard][u.run.source_offset : u.run.source_offset + u.run.num_bytes])
        for u in page_map.units(page.index)
    )


class PeerConnector(ABC):
    """Reads pages of other workers, and lets others read ours."""

    name: ClassVar[str]

    @classmethod
    def validate(cls, mine: Terms, theirs: Terms) -> list[str]:
        """Why this connector cannot serve this pair; empty when it may be tried."""
        return [] if cls.name in theirs.connectors else [f"{theirs.worker_id} does not offer {cls.name}"]

    def allocate(self, shape: tuple[int, int]) -> np.ndarray:
        """Memory for a region `[num_blocks, block_bytes]` (uint8, zeros) that this connector can let others read."""
        return np.zeros(shape, np.uint8)

    @abstractmethod
    def register(self, terms: Terms, regions: Sequence[np.ndarray], epochs: np.ndarray, gate: Gate) -> str:
        """Let others read `regions` (one per shard) and the epoch table (uint64); returns the address for `Terms`."""

    @abstractmethod
    def read(self, page: PageRead) -> None:
        """Begin to bring a page; `poll` reports how it goes."""

    @abstractmethod
    def poll(self) -> list[Event]:
        """Do a bounded piece of work (a chunk or so), without blocking."""

    @abstractmethod
    def close(self, pull_id: int | None = None) -> list[Event]:
        """End one pull (each of its reads is reported as failed) or, without an id, everything."""

    def forget(self, incarnation: str) -> None:
        """This incarnation is gone: let go of its memory and connections.  Its pulls are closed already."""
        return

    def descriptors(self) -> list[int]:
        """File descriptors that become readable when `poll` has work; empty when there are none."""
        return []

    @property
    def is_busy(self) -> bool:
        """Whether `poll` has work that no descriptor announces."""
        return False
