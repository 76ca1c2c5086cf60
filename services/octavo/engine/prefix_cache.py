"""`PrefixCache`: finds blocks of KV by what was computed in them.

A key is (group, hash); the hash is the chain value at the block's end (`octavo.kv.hash`), whose seed carries the
namespace, so equal tokens of two tenants never meet.  An entry lives as long as its block is not taken for new content;
the cache itself holds nothing.  Changes go to `on_event` in order, each with the next sequence number, so that a reader
can tell when it missed one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from octavo.engine.block_pool import BlockPool, HashKey
from octavo.errors import InternalError

STORED = "stored"
REMOVED = "removed"


class CacheEvent(NamedTuple):
    """One change: `kind` is `stored` or `removed`; `sequence` counts from 1 without gaps."""

    sequence: int
    kind: str
    group: int
    block_hash: bytes


class PrefixCache:
    """Entries over one pool for `num_groups` groups of layers.  Disabled, it matches and publishes nothing."""

    def __init__(
        self,
        pool: BlockPool,
        num_groups: int = 1,
        is_enabled: bool = True,
        on_event: Callable[[CacheEvent], None] | None = None,
    ) -> None:
        self.is_enabled = is_enabled
        self.on_event = on_event
        self._pool = pool
        self._blocks: list[dict[bytes, int]] = [{} for _ in range(num_groups)]
        self._num_events = 0
        pool.on_evict = self._forget

    def __len__(self) -> int:
        return sum(len(blocks) for blocks in self._blocks)

    def match(self, hashes: Sequence[bytes]) -> list[list[int]]:
        """Blocks of the longest prefix of `hashes` that every group has: one list per group, all equally long.

        The blocks are not held: the caller holds them before it allocates anything.
        """
        found: list[list[int]] = [[] for _ in self._blocks]
        if not self.is_enabled:
            return found
        for block_hash in hashes:
            blocks = [entries.get(block_hash) for entries in self._blocks]
            for block in blocks:
                if block is None:
                    return found
            for column, block in zip(found, blocks, strict=True):
                column.append(block)  # type: ignore[arg-type]  # None has returned above
        return found

    def publish(self, group: int, block_hash: bytes, block: int) -> bool:
        """Make a full, held block findable; False when its hash is there already (the first one stays) or disabled."""
        entries = self._blocks[group]
        if not self.is_enabled or block_hash in entries or self._pool.hash_of(block) is not None:
            return False
        self._pool.set_hash(block, (group, block_hash))
        entries[block_hash] = block
        self._notify(STORED, group, block_hash)
        return True

    def clear(self) -> None:
        """Forget every entry; blocks that sequences hold stay theirs."""
        for group, entries in enumerate(self._blocks):
            for block_hash, block in entries.items():
                self._pool.set_hash(block, None)
                self._notify(REMOVED, group, block_hash)
            entries.clear()

    def check_integrity(self) -> None:
        """Raise `InternalError` unless entries and the hashes of blocks are the same set."""
        for group, entries in enumerate(self._blocks):
            for block_hash, block in entries.items():
                if self._pool.hash_of(block) != (group, block_hash):
                    raise InternalError(f"prefix cache: block {block} of group {group} carries another hash")
        if self._pool.num_hashed != len(self):
            raise InternalError(f"prefix cache: {len(self)} entries, but {self._pool.num_hashed} blocks carry a hash")

    def _forget(self, key: HashKey, block: int) -> None:
        group, block_hash = key
        del self._blocks[group][block_hash]
        self._notify(REMOVED, group, block_hash)

    def _notify(self, kind: str, group: int, block_hash: bytes) -> None:
        self._num_events += 1
        if self.on_event is not None:
            self.on_event(CacheEvent(self._num_events, kind, group, block_hash))
