"""Finding blocks by hash in one and two groups."""

from __future__ import annotations

from octavo.engine.block_pool import BlockPool
from octavo.engine.prefix_cache import CacheEvent, PrefixCache

A, B = b"a" * 16, b"b" * 16


def test_a_match_ends_where_one_group_lacks_the_block() -> None:
    pool = BlockPool(4)
    cache = PrefixCache(pool, num_groups=2)
    pool.allocate(4)
    cache.publish(0, A, 0)
    cache.publish(1, A, 1)
    cache.publish(0, B, 2)
    assert cache.match([A, B]) == [[0], [1]]


def test_a_match_is_a_prefix() -> None:
    pool = BlockPool(2)
    cache = PrefixCache(pool)
    pool.allocate(2)
    cache.publish(0, B, 0)
    assert cache.match([A, B]) == [[]]


def test_the_first_block_of_a_hash_stays() -> None:
    pool = BlockPool(2)
    cache = PrefixCache(pool)
    pool.allocate(2)
    cache.publish(0, A, 0)
    assert not cache.publish(0, A, 1)
    assert cache.match([A]) == [[0]]


def test_taking_the_block_for_new_content_removes_the_entry() -> None:
    pool = BlockPool(1)
    cache = PrefixCache(pool)
    pool.allocate(1)
    cache.publish(0, A, 0)
    pool.release(0)
    pool.allocate(1)
    assert cache.match([A]) == [[]]


def test_changes_are_told_in_order_with_numbers() -> None:
    events: list[CacheEvent] = []
    pool = BlockPool(1)
    cache = PrefixCache(pool, on_event=events.append)
    pool.allocate(1)
    cache.publish(0, A, 0)
    pool.release(0)
    pool.allocate(1)
    assert events == [CacheEvent(1, "stored", 0, A), CacheEvent(2, "removed", 0, A)]


def test_clearing_makes_evictable_blocks_plain() -> None:
    pool = BlockPool(1)
    cache = PrefixCache(pool)
    pool.allocate(1)
    cache.publish(0, A, 0)
    pool.release(0)
    cache.clear()
    assert (pool.num_free, pool.num_evictable) == (1, 0)


def test_disabled_it_publishes_nothing() -> None:
    pool = BlockPool(1)
    cache = PrefixCache(pool, is_enabled=False)
    pool.allocate(1)
    assert not cache.publish(0, A, 0)
