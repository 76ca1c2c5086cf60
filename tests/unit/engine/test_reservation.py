"""`Reservations`: all or nothing, in order, nothing findable before it is verified, every hold back."""

from __future__ import annotations

import random

import pytest

from octavo.engine.block_pool import SEQ, BlockPool, transfer
from octavo.engine.prefix_cache import PrefixCache
from octavo.engine.reservation import Reservation, Reservations
from octavo.errors import InternalError

SIZE = 16


class Bench:
    def __init__(self, num_blocks: int = 16, num_groups: int = 1) -> None:
        self.pool = BlockPool(num_blocks)
        self.cache = PrefixCache(self.pool, num_groups)
        self.reservations = Reservations(self.pool, self.cache, SIZE, num_groups)

    def ask(self, name: str, num_tokens: int, num_extra: int = 0, prompt: str = "") -> Reservation:
        reservation = Reservation(name, num_tokens, hashes_of(prompt or name, num_tokens), num_extra)
        self.reservations.request(reservation)
        return reservation

    def grant(self, num_spare: int = 0) -> list[str]:
        granted = [r.transfer_id for r in self.reservations.grant(num_spare)]
        self.check()
        return granted

    def check(self) -> None:
        self.reservations.check_integrity()
        self.pool.check_integrity()
        self.cache.check_integrity()

    def end_sequence(self, reservation: Reservation) -> None:
        for table in reservation.tables:
            for block in table:
                self.pool.release(block, SEQ)


def hashes_of(prompt: str, num_tokens: int) -> list[bytes]:
    return [f"{prompt}{i}".ljust(16, "_").encode() for i in range(num_tokens // SIZE)]


def test_a_reservation_holds_the_prompt_and_a_block_for_each_further_sequence() -> None:
    bench = Bench(num_blocks=16, num_groups=2)
    reservation = bench.ask("t", 40, num_extra=1)
    assert bench.grant() == ["t"]
    assert [len(table) for table in reservation.tables] == [3, 3]
    assert bench.pool.num_free == 16 - 8
    assert all(bench.pool.num_holds(b, transfer("t")) == 1 for table in reservation.tables for b in table)


def test_nothing_can_be_found_before_it_is_verified_and_full_blocks_can_after() -> None:
    bench = Bench()
    reservation = bench.ask("t", 40)
    bench.grant()
    assert bench.cache.match(reservation.hashes) == [[]]
    assert bench.reservations.commit("t", 40) is reservation
    bench.check()
    assert bench.cache.match(reservation.hashes) == [reservation.tables[0][:2]]
    assert [bench.pool.num_holds(b) for b in reservation.tables[0]] == [1, 1, 1]
    assert [bench.pool.num_holds(b, SEQ) for b in reservation.tables[0]] == [1, 1, 1]
    bench.end_sequence(reservation)
    assert (bench.pool.num_free, bench.pool.num_evictable) == (16, 2)


def test_the_own_cached_prefix_is_held_instead_of_new_blocks() -> None:
    bench = Bench(num_blocks=6)
    first = bench.ask("t", 32, prompt="same")
    bench.grant()
    bench.reservations.commit("t", 32)
    bench.end_sequence(first)
    second = bench.ask("u", 80, prompt="same")
    assert bench.grant() == ["u"]
    assert second.num_shared == 2
    assert second.tables[0][:2] == first.tables[0]
    assert bench.pool.num_free == 1


def test_what_does_not_fit_changes_nothing_and_is_not_overtaken() -> None:
    bench = Bench(num_blocks=8)
    bench.pool.allocate(3)
    bench.ask("big", 96)
    bench.ask("small", 16)
    assert bench.grant() == []
    assert bench.pool.num_free == 5
    bench.reservations.give_up("big")
    assert bench.grant() == ["small"]


def test_those_that_wait_hold_at_most_half_the_pool_but_a_lone_one_may_have_it_all() -> None:
    bench = Bench(num_blocks=8)
    bench.ask("a", 8 * SIZE)
    bench.ask("b", 8 * SIZE)
    assert bench.grant() == ["a"]
    assert bench.grant() == []
    bench.reservations.give_up("a")
    assert bench.grant() == ["b"]
    bench.reservations.give_up("b")
    for name in "cde":
        bench.ask(name, 2 * SIZE)
    assert bench.grant() == ["c", "d"]


def test_spare_blocks_are_left_unless_it_would_never_fit() -> None:
    bench = Bench(num_blocks=8)
    bench.pool.allocate(4)
    bench.ask("t", 4 * SIZE)
    assert bench.grant(num_spare=1) == []
    bench = Bench(num_blocks=4)
    bench.ask("t", 4 * SIZE)
    assert bench.grant(num_spare=1) == ["t"]


def test_giving_up_keeps_what_is_verified_findable() -> None:
    bench = Bench()
    reservation = bench.ask("t", 64)
    bench.grant()
    bench.reservations.give_up("t", num_tokens=40)
    bench.check()
    assert len(bench.cache.match(reservation.hashes)[0]) == 2
    assert bench.pool.num_free == bench.pool.num_blocks


def test_outgoing_blocks_outlive_their_sequence() -> None:
    bench = Bench(num_blocks=4)
    blocks = bench.pool.allocate(3)
    assert blocks is not None
    bench.reservations.hold_outgoing("t", blocks[:2])
    bench.reservations.hold_outgoing("t", blocks[2:])
    for block in blocks:
        bench.pool.release(block, SEQ)
    assert bench.pool.num_free == 1
    bench.check()
    bench.reservations.free_outgoing("t")
    bench.reservations.free_outgoing("t")
    assert bench.pool.num_free == 4


def test_what_can_never_fit_and_what_is_known_is_refused() -> None:
    bench = Bench(num_blocks=4)
    with pytest.raises(InternalError, match="needs 5 of 4"):
        bench.ask("t", 5 * SIZE)
    bench.ask("t", SIZE)
    with pytest.raises(InternalError, match="already"):
        bench.ask("t", SIZE)
    with pytest.raises(InternalError, match="no granted"):
        bench.reservations.commit("t", 16)


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_events_ends_with_every_block_back(seed: int) -> None:
    rng = random.Random(seed)
    bench = Bench(num_blocks=12, num_groups=rng.choice((1, 2)))
    live: list[Reservation] = []
    granted: list[str] = []
    for number in range(60):
        if rng.random() < 0.5:
            bench.ask(f"t{number}", rng.randrange(1, 80), rng.choice((0, 0, 1)), rng.choice("xyz"))
        granted += bench.grant(rng.choice((0, 1)))
        if granted and rng.random() < 0.6:
            name = granted.pop(rng.randrange(len(granted)))
            if rng.random() < 0.5:
                live.append(bench.reservations.commit(name, rng.randrange(80)))
            else:
                bench.reservations.give_up(name, rng.randrange(80))
        if live and rng.random() < 0.5:
            bench.end_sequence(live.pop(rng.randrange(len(live))))
        bench.check()
    for reservation in live:
        bench.end_sequence(reservation)
    while granted or len(bench.reservations):
        for name in granted or bench.grant():
            bench.reservations.give_up(name)
        granted = []
    bench.check()
    assert bench.pool.num_free == 12
