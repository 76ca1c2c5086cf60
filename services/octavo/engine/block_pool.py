"""`BlockPool`: who holds which block of KV, and which blocks may be used again.

A block has *holds*, counted by kind: `SEQ` (a sequence's block table), `transfer(id)`, `copy(tier)` and `step(n)` (read
or written by step n, which has not completed).  A block without holds is *reusable*; when it also carries a hash it is
*evictable*: its content may be found again until the pool needs the block, least recently used first.  The hash is an
attribute, never a hold.  `release` is the only verb that gives a hold back, and nothing else frees a block; the holds
of a step end with `complete_step`, which releases them one by one.

The pool knows neither tokens nor groups of layers: all groups draw from it, and a hash key is (group, hash).
Every operation is O(1) per block.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from octavo.errors import InternalError

Hold = tuple[str, int | str]
HashKey = tuple[int, bytes]

SEQ: Hold = ("seq", 0)


def transfer(transfer_id: str) -> Hold:
    """The hold of one transfer."""
    return ("transfer", transfer_id)


def copy(tier: str) -> Hold:
    """The hold of a copy to or from a tier (host, disk)."""
    return ("copy", tier)


def step(number: int) -> Hold:
    """The hold of a step that reads or writes the block and has not completed."""
    return ("step", number)


class BlockPool:
    """Holds and hashes of blocks 0 .. num_blocks - 1.

    `on_evict(key, block)` is called when an evictable block is taken for new content, before it is handed out.
    """

    def __init__(self, num_blocks: int, on_evict: Callable[[HashKey, int], None] | None = None) -> None:
        self.num_blocks = num_blocks
        self.on_evict = on_evict
        self._num_holds = [0] * num_blocks
        self._num_seq_holds = [0] * num_blocks
        self._num_step_holds = [0] * num_blocks
        self._other_holds: dict[int, dict[Hold, int]] = {}
        self._step_blocks: dict[int, list[int]] = {}
        self._hashes: list[HashKey | None] = [None] * num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._evictable: OrderedDict[int, None] = OrderedDict()
        self._num_releasing = 0

    @property
    def num_free(self) -> int:
        """Blocks without holds, evictable ones included: what `allocate` can hand out."""
        return len(self._free) + len(self._evictable)

    @property
    def num_evictable(self) -> int:
        """Blocks without holds whose content can still be found by hash."""
        return len(self._evictable)

    @property
    def num_hashed(self) -> int:
        """Blocks that carry a hash, held or not; O(num_blocks), for checks."""
        return self.num_blocks - self._hashes.count(None)

    @property
    def num_releasing(self) -> int:
        """Blocks whose only holds are those of steps: free as soon as these steps complete."""
        return self._num_releasing

    def num_holds(self, block: int, hold: Hold | None = None) -> int:
        """Holds on a block, of one kind or all."""
        if hold is None:
            return self._num_holds[block]
        if hold == SEQ:
            return self._num_seq_holds[block]
        return self._other_holds.get(block, {}).get(hold, 0)

    def hash_of(self, block: int) -> HashKey | None:
        """The hash entry of a block, if it has one."""
        return self._hashes[block]

    def allocate(self, count: int, hold: Hold = SEQ) -> list[int] | None:
        """`count` blocks with one hold each, or None (and no change) when fewer are free."""
        if count > self.num_free:
            return None
        blocks = []
        for _ in range(count):
            block = self._free.pop() if self._free else self._evict()
            blocks.append(block)
            self._add(block, hold)
        return blocks

    def hold(self, block: int, hold: Hold = SEQ) -> None:
        """Add a hold to a block that is held already or whose content was found by hash."""
        if not self._num_holds[block]:
            if block not in self._evictable:
                raise InternalError(f"block {block} is free and carries no hash: it has no content to hold")
            del self._evictable[block]
        self._add(block, hold)

    def release(self, block: int, hold: Hold = SEQ) -> None:
        """Give one hold back; the last one makes the block reusable (evictable when it carries a hash)."""
        if hold == SEQ:
            if not self._num_seq_holds[block]:
                raise InternalError(f"block {block} has no hold {hold}")
            self._num_seq_holds[block] -= 1
        else:
            held = self._other_holds.get(block, {})
            if not held.get(hold):
                raise InternalError(f"block {block} has no hold {hold}")
            held[hold] -= 1
            if not held[hold]:
                del held[hold]
                if not held:
                    del self._other_holds[block]
        self._count(block, hold, -1)
        if not self._num_holds[block]:
            if self._hashes[block] is None:
                self._free.append(block)
            else:
                self._evictable[block] = None

    def complete_step(self, number: int) -> None:
        """Release every hold of step `number`."""
        hold = step(number)
        for block in self._step_blocks.pop(number, ()):
            self.release(block, hold)

    def set_hash(self, block: int, key: HashKey | None) -> None:
        """Set the hash entry of a held block, or drop the entry of any block."""
        if key is not None:
            if not self._num_holds[block]:
                raise InternalError(f"block {block} has no holds: its content cannot be named")
        elif block in self._evictable:
            del self._evictable[block]
            self._free.append(block)
        self._hashes[block] = key

    def check_integrity(self, tables: Iterable[list[int]] | None = None) -> None:
        """Raise `InternalError` when counters and lists disagree.

        `tables` (every live block table) must account for all `SEQ` holds exactly, when given.
        """
        free, evictable = set(self._free), self._evictable.keys()
        num_unheld = self._num_holds.count(0)
        if len(free) != len(self._free) or free & evictable or len(free) + len(evictable) != num_unheld:
            raise InternalError(
                f"pool: {len(self._free)} free + {len(evictable)} evictable, {num_unheld} without holds"
            )
        # map over bound methods: pools have 100,000 blocks and more, and the engine checks whenever it is idle
        if any(map(self._num_holds.__getitem__, free)) or any(map(self._hashes.__getitem__, free)):
            raise InternalError("pool: a free block is held or carries a hash")
        if any(map(self._num_holds.__getitem__, evictable)) or not all(map(self._hashes.__getitem__, evictable)):
            raise InternalError("pool: an evictable block is held or carries no hash")
        if sum(self._num_holds) != sum(self._num_seq_holds) + sum(sum(h.values()) for h in self._other_holds.values()):
            raise InternalError("pool: holds by kind do not add up")
        if self._num_releasing != sum(self._is_releasing(b) for b in self._other_holds):
            raise InternalError(f"pool: {self._num_releasing} blocks counted as releasing")
        if tables is not None:
            counted = [0] * self.num_blocks
            for table in tables:
                for block in table:
                    counted[block] += 1
            if counted != self._num_seq_holds:
                wrong = [b for b in range(self.num_blocks) if counted[b] != self._num_seq_holds[b]]
                raise InternalError(f"pool: sequence holds differ from the block tables for blocks {wrong[:8]}")

    def _add(self, block: int, hold: Hold) -> None:
        if hold == SEQ:
            self._num_seq_holds[block] += 1
        else:
            held = self._other_holds.setdefault(block, {})
            held[hold] = held.get(hold, 0) + 1
            if hold[0] == "step":
                self._step_blocks.setdefault(int(hold[1]), []).append(block)
        self._count(block, hold, 1)

    def _count(self, block: int, hold: Hold, change: int) -> None:
        was_releasing = self._is_releasing(block)
        self._num_holds[block] += change
        if hold[0] == "step":
            self._num_step_holds[block] += change
        self._num_releasing += self._is_releasing(block) - was_releasing

    def _is_releasing(self, block: int) -> bool:
        return 0 < self._num_step_holds[block] == self._num_holds[block]

    def _evict(self) -> int:
        block, _ = self._evictable.popitem(last=False)
        key = self._hashes[block]
        self._hashes[block] = None
        if self.on_evict is not None and key is not None:
            self.on_evict(key, block)
        return block
