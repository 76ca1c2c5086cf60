"""What the simulated world of the transfer machine is made of: workers with memory, copies and messages under way."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from octavo.kv.layout import GroupSpec, KVLayout
from octavo.transfer.machine.consumer import Consumer
from octavo.transfer.machine.noun import Limits, ReadOrder
from octavo.transfer.machine.producer import Producer
from octavo.transfer.message import Page, Shard, Terms

UNIT = 16
LIMITS = Limits(num_slots=8, max_reads=3)
NUM_BLOCKS = 24
MESSAGE_LIFE_S = 25.0
"""No link holds a message longer: resent for 30 s and under way for 25, it still meets the tombstone (60 s)."""


Classes = tuple[type[Producer], type[Consumer]]


class Violation(AssertionError):
    """A rule that must hold in every schedule does not."""


def check(is_right: bool, text: str) -> None:
    if not is_right:
        raise Violation(text)


def terms_of(name: str, life: int, block_size: int, num_groups: int) -> Terms:
    groups = tuple(GroupSpec(g, "full", (g,)) for g in range(num_groups))
    layout = KVLayout(block_size, 2, 4, "float32", groups)
    return Terms(name, f"{name}.{life}", "weights", layout, (Shard(0, 0, 1, 0, 2, NUM_BLOCKS),))


@dataclass
class Job:
    """One page being copied.  A two-sided job runs at the producer and its chunks travel; a one-sided one does not."""

    transfer_id: str
    wire_id: str
    pull_id: int
    epoch: int
    slot: int
    order: ReadOrder
    source: str
    is_two_sided: bool
    todo: list[tuple[int, int]] = field(default_factory=list)
    got: set[tuple[int, int]] = field(default_factory=set)
    num_units: int = 0
    epoch_after: int | None = None
    pending: tuple[int, int] | None = None
    is_stopped: bool = False
    is_corrupted: bool = False


@dataclass
class Chunk:
    """What a two-sided connector's frames carry: a unit of a page, the epoch at the end, or a refusal."""

    job: Job
    unit: tuple[int, int] | None
    value: Any = None
    epoch: int = 0
    is_refused: bool = False


@dataclass
class Message:
    """Something under way to one life of a worker."""

    to: str
    life: str
    frame: bytes | Chunk
    sent_s: float


class Node:
    """One worker: its machines, and the memory of its blocks (a list of unit values for each)."""

    def __init__(self, name: str, block_size: int, num_groups: int, classes: Classes, life: int = 0) -> None:
        self.name, self.block_size, self.num_groups, self.life = name, block_size, num_groups, life
        self.terms = terms_of(name, life, block_size, num_groups)
        producer_class, consumer_class = classes
        self.producer = producer_class(self.terms, LIMITS, first_epoch=life * 1000)
        self.consumer = consumer_class(self.terms, LIMITS, first_pull_id=life * 1000 + 1)
        self.memory: list[list[Any]] = [[("old", b)] * (block_size // UNIT) for b in range(NUM_BLOCKS)]
        self.holder: list[str | None] = [None] * NUM_BLOCKS
        self.epochs = [0] * LIMITS.num_slots
        self.stopped_until_s = 0.0
        self.serving: list[Job] = []
        self.fills: dict[str, list[Page]] = {}
        self.num_total: dict[str, int] = {}
        self.is_request: dict[str, bool] = {}
        self.published: dict[str, list[list[int]]] = {}
        self.tables: dict[str, list[list[int]]] = {}

    def allocate(self, transfer_id: str, num_tokens: int, rng: random.Random) -> list[list[int]] | None:
        count = -(-num_tokens // self.block_size)
        free = [b for b in range(NUM_BLOCKS) if self.holder[b] is None]
        if len(free) < count * self.num_groups:
            return None
        rng.shuffle(free)
        tables = [free[g * count : (g + 1) * count] for g in range(self.num_groups)]
        for table in tables:
            for block in table:
                self.holder[block] = transfer_id
        return tables

    def release(self, transfer_id: str) -> None:
        for block in range(NUM_BLOCKS):
            if self.holder[block] == transfer_id:
                self.holder[block] = None

    def scribble(self, rng: random.Random) -> None:
        """Somebody else uses a free block."""
        free = [b for b in range(NUM_BLOCKS) if self.holder[b] is None]
        if free:
            block = rng.choice(free)
            self.memory[block] = [("junk", rng.random())] * (self.block_size // UNIT)
