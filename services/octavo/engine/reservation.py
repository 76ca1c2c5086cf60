"""`Reservations`: blocks that wait for pages of another worker, and blocks that other workers still read.  Pure.

A reservation is all or nothing: the prompt's blocks and one more for each sequence.  What the prefix cache has
is held, the rest allocated, all of it under `transfer(id)`; nothing of it can be found by hash until it is verified.
Reservations are granted in order, none overtaking; those that wait for pages hold at most half the pool together, but a
lone one may have it all, so that two that do not fit together come one after the other and neither waits for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo.engine.block_pool import SEQ, BlockPool, transfer
from octavo.engine.prefix_cache import PrefixCache
from octavo.errors import InternalError


@dataclass(eq=False, slots=True)
class Reservation:
    """One decode leg's blocks.

    `hashes` are those of the prompt's full blocks; `num_extra` blocks per group are for what the sequences write next.
    Once granted, `tables` has a list of blocks per group, of which the first `num_shared` were in the prefix cache.
    """

    transfer_id: str
    num_tokens: int
    hashes: Sequence[bytes]
    num_extra: int = 0
    tables: list[list[int]] = field(default_factory=list)
    extra: list[int] = field(default_factory=list)
    num_shared: int = 0

    @property
    def num_blocks(self) -> int:
        """Blocks that the reservation holds."""
        return sum(map(len, self.tables)) + len(self.extra)


class Reservations:
    """Owner of the reservations of one engine, and of the holds that outgoing transfers have."""

    def __init__(self, pool: BlockPool, cache: PrefixCache, block_size: int, num_groups: int) -> None:
        self._pool, self._cache = pool, cache
        self._block_size, self._num_groups = block_size, num_groups
        self._queue: dict[str, Reservation] = {}
        self._granted: dict[str, Reservation] = {}
        self._outgoing: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self._queue) + len(self._granted)

    @property
    def num_held(self) -> int:
        """Blocks that wait for pages."""
        return sum(r.num_blocks for r in self._granted.values())

    # --- blocks that wait for pages ----------------------------------------------------------------------------------

    def request(self, reservation: Reservation) -> None:
        """Queue a reservation.  Raises `InternalError` when its id is known, or when it could never be granted."""
        key = reservation.transfer_id
        if key in self._queue or key in self._granted:
            raise InternalError(f"transfer {key} has a reservation already")
        if self._num_needed(reservation) > self._pool.num_blocks:
            raise InternalError(
                f"transfer {key} needs {self._num_needed(reservation)} of {self._pool.num_blocks} blocks"
            )
        self._queue[key] = reservation

    def grant(self, num_spare: int = 0) -> list[Reservation]:
        """Give blocks to those whose turn it is and that fit; `num_spare` free blocks are left to what runs."""
        granted = []
        for key, reservation in list(self._queue.items()):
            if not self._try_grant(reservation, num_spare):
                break
            del self._queue[key]
            self._granted[key] = reservation
            granted.append(reservation)
        return granted

    def withdraw(self, transfer_id: str) -> bool:
        """Take a reservation out of the queue; False when it is granted already."""
        return self._queue.pop(transfer_id, None) is not None

    def commit(self, transfer_id: str, num_tokens: int) -> Reservation:
        """The first `num_tokens` tokens are verified: publish their full blocks and give the tables to the sequence
        (its holds become `SEQ`); the extra blocks are free for its siblings."""
        reservation = self._take(transfer_id)
        for table in reservation.tables:
            for block in table:
                self._pool.hold(block, SEQ)
        self._publish(reservation, num_tokens)
        self._release(reservation)
        return reservation

    def give_up(self, transfer_id: str, num_tokens: int = 0) -> None:
        """Release a reservation, granted or not.  What is verified stays findable, so that a recompute starts there."""
        if self._queue.pop(transfer_id, None) is None:
            reservation = self._take(transfer_id)
            self._publish(reservation, num_tokens)
            self._release(reservation)

    # --- blocks that others read -------------------------------------------------------------------------------------

    def hold_outgoing(self, transfer_id: str, blocks: Sequence[int]) -> None:
        """Hold filled blocks for the consumer of an outgoing transfer, beyond the life of their sequence."""
        for block in blocks:
            self._pool.hold(block, transfer(transfer_id))
        self._outgoing.setdefault(transfer_id, []).extend(blocks)

    def free_outgoing(self, transfer_id: str) -> None:
        """Nobody reads them any more; unknown transfers are ignored."""
        for block in self._outgoing.pop(transfer_id, []):
            self._pool.release(block, transfer(transfer_id))

    def check_integrity(self) -> None:
        """Raise `InternalError` unless every hold of a transfer is one of ours."""
        for reservation in self._granted.values():
            hold = transfer(reservation.transfer_id)
            blocks = [b for table in reservation.tables for b in table] + reservation.extra
            wrong = [b for b in blocks if self._pool.num_holds(b, hold) != 1]
            if wrong:
                raise InternalError(f"transfer {reservation.transfer_id}: blocks {wrong[:8]} are not held once")
        for transfer_id, blocks in self._outgoing.items():
            wrong = [b for b in blocks if not self._pool.num_holds(b, transfer(transfer_id))]
            if wrong:
                raise InternalError(f"transfer {transfer_id}: blocks {wrong[:8]} are not held")

    # --- inside ------------------------------------------------------------------------------------------------------

    def _num_needed(self, reservation: Reservation) -> int:
        """Blocks for the prompt, and the extra ones as far as the pool has any beside."""
        num_prompt = -(-reservation.num_tokens // self._block_size)
        num_most = self._pool.num_blocks // self._num_groups
        return max(num_prompt, min(num_prompt + reservation.num_extra, num_most)) * self._num_groups

    def _try_grant(self, reservation: Reservation, num_spare: int) -> bool:
        needed = self._num_needed(reservation)
        if self._granted and self.num_held + needed > self._pool.num_blocks // 2:
            return False
        hold = transfer(reservation.transfer_id)
        shared = self._cache.match(reservation.hashes)
        for block in [b for table in shared for b in table]:
            self._pool.hold(block, hold)
        num_new = needed - sum(map(len, shared))
        spare = 0 if needed + num_spare > self._pool.num_blocks else num_spare
        fresh = self._pool.allocate(num_new, hold) if self._pool.num_free >= num_new + spare else None
        if fresh is None:
            for block in [b for table in shared for b in table]:
                self._pool.release(block, hold)
            return False
        num_shared = len(shared[0])
        count = -(-reservation.num_tokens // self._block_size) - num_shared
        reservation.num_shared = num_shared
        reservation.tables = [[*shared[g], *fresh[g * count : (g + 1) * count]] for g in range(self._num_groups)]
        reservation.extra = fresh[count * self._num_groups :]
        return True

    def _take(self, transfer_id: str) -> Reservation:
        reservation = self._granted.pop(transfer_id, None)
        if reservation is None:
            raise InternalError(f"transfer {transfer_id} has no granted reservation")
        return reservation

    def _publish(self, reservation: Reservation, num_tokens: int) -> None:
        num_full = min(num_tokens // self._block_size, len(reservation.hashes))
        for index in range(reservation.num_shared, num_full):
            for group, table in enumerate(reservation.tables):
                self._cache.publish(group, reservation.hashes[index], table[index])

    def _release(self, reservation: Reservation) -> None:
        hold = transfer(reservation.transfer_id)
        for block in reservation.extra:
            self._pool.release(block, hold)
        for table in reservation.tables:
            for block in reversed(table):  # the tail becomes least recently used, the head is worth most
                self._pool.release(block, hold)
