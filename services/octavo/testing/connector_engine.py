"""A small engine and worker for the connector kit: real block pool, real endpoint, pages whose bytes are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from octavo.engine.block_pool import SEQ, BlockPool, transfer
from octavo.kv.layout import GroupSpec, KVLayout
from octavo.transfer.connector.peer import PeerConnector
from octavo.transfer.endpoint import Endpoint
from octavo.transfer.link import Link
from octavo.transfer.machine.noun import Limits, Reason
from octavo.transfer.message import Hello, Page, Shard, Terms

NUM_BLOCKS = 24
NUM_LAYERS, NUM_HEADS, HEAD_DIM = 3, 4, 8
NUM_GROUPS = 2
MAX_TOKENS = 512
LIMITS = Limits(num_slots=16, max_reads=4)


@dataclass(frozen=True)
class Shape:
    """One side's block size and the KV heads of each of its shards, as (first, number)."""

    block_size: int = 32
    heads: tuple[tuple[int, int], ...] = ((0, NUM_HEADS),)

    def terms(self, worker_id: str, life: int) -> Terms:
        groups = tuple(GroupSpec(g, "full", tuple(range(g, 2 * NUM_LAYERS, 2))) for g in range(NUM_GROUPS))
        layout = KVLayout(self.block_size, NUM_HEADS, HEAD_DIM, "float32", groups)
        shards = tuple(
            Shard(rank, 0, NUM_LAYERS, first, num, NUM_BLOCKS) for rank, (first, num) in enumerate(self.heads)
        )
        return Terms(worker_id, f"{worker_id}.{life}", "weights", layout, shards)


def page_bytes(seed: int = 7) -> np.ndarray:
    """What every sequence's KV is: `[groups, layers, 2, heads, tokens, head_dim]` float32."""
    shape = (NUM_GROUPS, NUM_LAYERS, 2, NUM_HEADS, MAX_TOKENS, HEAD_DIM)
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@dataclass
class Outcome:
    """What came of an incoming transfer."""

    kind: str
    num_tokens: int
    payload: bytes | None = None
    reason: Reason | None = None


@dataclass
class Engine:
    """Satisfies `EngineHooks`.  What would call back into the endpoint is queued in `todo`."""

    pool: BlockPool
    todo: list[Callable[[], None]] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    tables: dict[str, list[list[int]]] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    on_lookup: Callable[[Hello], None] | None = None
    on_commit: Callable[[str], None] | None = None

    def begin(self, transfer_id: str) -> None:
        self.begun.append(transfer_id)

    def cancel(self, transfer_id: str, reason: Reason) -> None:
        self.cancelled.append(transfer_id)

    def free(self, transfer_id: str) -> None:
        self._release(transfer_id)

    def lookup(self, hello: Hello) -> None:
        if self.on_lookup is not None:
            act = self.on_lookup
            self.todo.append(lambda: act(hello))

    def commit(self, transfer_id: str, num_tokens: int, payload: bytes) -> None:
        for block in [b for table in self.tables[transfer_id] for b in table]:
            self.pool.hold(block, SEQ)
            self.pool.release(block, transfer(transfer_id))
        self.outcomes[transfer_id] = Outcome("commit", num_tokens, payload)
        if self.on_commit is not None:
            act = self.on_commit
            self.todo.append(lambda: act(transfer_id))

    def give_up(self, transfer_id: str, reason: Reason, num_tokens: int, payload: bytes | None) -> None:
        self.outcomes[transfer_id] = Outcome("give_up", num_tokens, payload, reason)
        self._release(transfer_id)

    def _release(self, transfer_id: str) -> None:
        for block in [b for table in self.tables.pop(transfer_id, []) for b in table]:
            self.pool.release(block, transfer(transfer_id))


class Worker:
    """One engine with its endpoint."""

    def __init__(
        self,
        worker_id: str,
        shape: Shape,
        connectors: Sequence[PeerConnector],
        link: Link,
        clock: Callable[[], float],
        life: int = 0,
    ) -> None:
        self.shape = shape
        self.connectors = {c.name: c for c in connectors}
        self.link = link
        self.engine = Engine(BlockPool(NUM_BLOCKS))
        self.is_stopped = self.is_dead = False
        self.values = page_bytes()
        terms = shape.terms(worker_id, life)
        memory = self.connectors.get("shm", connectors[0])
        row_bytes = NUM_LAYERS * 2 * shape.block_size * HEAD_DIM * 4
        self.regions = [memory.allocate((NUM_BLOCKS, shard.num_heads * row_bytes)) for shard in terms.shards]
        for region in self.regions:
            region[:] = 0xEE
        first = life * 1_000_000 + 1
        self.endpoint = Endpoint(
            terms,
            self.regions,
            connectors,
            link,
            self.engine,
            clock,
            LIMITS,
            memory=memory,
            first_epoch=first,
            first_pull_id=first,
        )
        self.terms = self.endpoint.terms
        self.engine.on_commit = self.endpoint.committed
        self.engine.on_lookup = self.answer_lookup
        self.num_lookup_tokens = MAX_TOKENS

    def step(self) -> bool:
        """One step of the endpoint, and what the engine had to do after it."""
        if self.is_stopped or self.is_dead:
            return False
        was_busy = self.endpoint.step()
        todo, self.engine.todo = self.engine.todo, []
        for act in todo:
            act()
        return was_busy or bool(todo)

    def block(self, shard: int, block: int) -> np.ndarray:
        """A block as `[layers, 2, heads, block_size, head_dim]` float32."""
        num_heads = self.terms.shards[shard].num_heads
        view = self.regions[shard][block].view(np.float32)
        return view.reshape(NUM_LAYERS, 2, num_heads, self.shape.block_size, HEAD_DIM)

    def _parts(self, group: int, index: int) -> list[np.ndarray]:
        """What page `index` must hold, per shard."""
        start = index * self.shape.block_size
        tokens = self.values[group][:, :, :, start : start + self.shape.block_size]
        return [tokens[:, :, s.first_head : s.first_head + s.num_heads] for s in self.terms.shards]

    def allocate(self, transfer_id: str, num_tokens: int) -> list[list[int]]:
        count = -(-num_tokens // self.shape.block_size)
        blocks = self.engine.pool.allocate(count * NUM_GROUPS, transfer(transfer_id))
        if blocks is None:
            raise AssertionError(f"the kit's pool is too small for {num_tokens} tokens")
        tables = [blocks[g * count : (g + 1) * count] for g in range(NUM_GROUPS)]
        self.engine.tables[transfer_id] = tables
        return tables

    def reserve(self, transfer_id: str, num_tokens: int) -> list[Page]:
        """Open an outgoing transfer and compute its pages; the caller fills them."""
        tables = self.allocate(transfer_id, num_tokens)
        pages = [Page(g, i, tables[g][i]) for i in range(len(tables[0])) for g in range(NUM_GROUPS)]
        for page in pages:
            for shard, part in enumerate(self._parts(page.group, page.index)):
                self.block(shard, page.block)[:] = part
        self.endpoint.reserve(transfer_id, (transfer_id, 1))
        return pages

    def answer_lookup(self, hello: Hello) -> None:
        num_tokens = self.num_lookup_tokens // self.shape.block_size * self.shape.block_size
        pages = self.reserve(hello.transfer_id, num_tokens)
        self.endpoint.fill(hello.transfer_id, pages)
        self.endpoint.finish(hello.transfer_id, num_tokens)

    def wrong_pages(self, transfer_id: str, num_tokens: int, from_token: int = 0) -> list[tuple[int, int]]:
        """(group, token) of every token whose bytes in our blocks are not what they must be."""
        size = self.shape.block_size
        wrong = []
        for group, table in enumerate(self.engine.tables[transfer_id]):
            for token in range(from_token, num_tokens):
                for shard, part in enumerate(self._parts(group, token // size)):
                    got = self.block(shard, table[token // size])[:, :, :, token % size]
                    if not np.array_equal(got, part[:, :, :, token % size]):
                        wrong.append((group, token))
        return wrong

    def end_sequence(self, transfer_id: str) -> None:
        for block in [b for table in self.engine.tables.pop(transfer_id) for b in table]:
            self.engine.pool.release(block, SEQ)

    def die(self) -> None:
        self.is_dead = True
        self.endpoint.close()
