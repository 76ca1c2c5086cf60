"""Holds, reuse and eviction, one at a time."""

from __future__ import annotations

import pytest

from octavo.engine.block_pool import SEQ, BlockPool, copy, step, transfer
from octavo.errors import InternalError

KEY = (0, b"h" * 16)


def taken(pool: BlockPool, count: int) -> list[int]:
    blocks = pool.allocate(count)
    assert blocks is not None
    return blocks


def test_allocation_is_all_or_nothing() -> None:
    pool = BlockPool(3)
    assert pool.allocate(4) is None
    assert pool.num_free == 3


@pytest.mark.parametrize("hold", [transfer("t"), copy("host"), step(4)])
def test_any_other_hold_keeps_a_block_after_its_sequence(hold: tuple[str, int | str]) -> None:
    pool = BlockPool(1)
    (block,) = taken(pool, 1)
    pool.hold(block, hold)
    pool.release(block)
    assert pool.num_free == 0


def test_a_completed_step_releases_its_holds() -> None:
    pool = BlockPool(2)
    for block in taken(pool, 2):
        pool.hold(block, step(4))
        pool.release(block)
    pool.complete_step(4)
    assert pool.num_free == 2


def test_blocks_held_only_by_steps_are_releasing() -> None:
    pool = BlockPool(2)
    for block in taken(pool, 2):
        pool.hold(block, step(4))
    pool.release(0)
    assert pool.num_releasing == 1


def test_a_shared_block_stays_until_its_last_hold() -> None:
    pool = BlockPool(1)
    (block,) = taken(pool, 1)
    pool.hold(block)
    pool.release(block)
    assert pool.num_holds(block, SEQ) == 1


def test_a_hash_does_not_keep_a_block() -> None:
    pool = BlockPool(1)
    (block,) = taken(pool, 1)
    pool.set_hash(block, KEY)
    pool.release(block)
    assert (pool.num_free, pool.num_evictable) == (1, 1)


def test_the_least_recently_used_block_is_evicted_first() -> None:
    evicted = []
    pool = BlockPool(3, on_evict=lambda key, block: evicted.append(block))
    blocks = taken(pool, 3)
    for block in blocks:
        pool.set_hash(block, (0, bytes([block]) * 16))
    for block in (blocks[1], blocks[0], blocks[2]):
        pool.release(block)
    pool.hold(blocks[1])
    pool.release(blocks[1])
    taken(pool, 2)
    assert evicted == [blocks[0], blocks[2]]


def test_plain_blocks_are_taken_before_evictable_ones() -> None:
    pool = BlockPool(2)
    first, second = taken(pool, 2)
    pool.set_hash(first, KEY)
    pool.release(first)
    pool.release(second)
    assert taken(pool, 1) == [second]


def test_releasing_a_hold_that_is_not_there_is_an_error() -> None:
    pool = BlockPool(1)
    (block,) = taken(pool, 1)
    with pytest.raises(InternalError, match="no hold"):
        pool.release(block, transfer("t"))


def test_a_free_block_cannot_be_held_without_allocating_it() -> None:
    with pytest.raises(InternalError, match="no content"):
        BlockPool(1).hold(0)


def test_integrity_names_a_table_that_lost_a_block() -> None:
    pool = BlockPool(2)
    taken(pool, 2)
    with pytest.raises(InternalError, match="block tables"):
        pool.check_integrity([[0]])
