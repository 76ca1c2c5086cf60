"""`BlockPool` against a model that keeps a plain bag of holds per block."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octavo.engine.block_pool import SEQ, BlockPool, HashKey, Hold, copy, step, transfer

HOLDS: list[Hold] = [SEQ, transfer("t1"), transfer("t2"), copy("host"), step(1), step(2)]
holds = st.sampled_from(HOLDS)


class BlockPoolMachine(RuleBasedStateMachine):
    @initialize(num_blocks=st.integers(1, 6))
    def start(self, num_blocks: int) -> None:
        self.pool = BlockPool(num_blocks, on_evict=lambda key, block: self.evicted.append((key, block)))
        self.evicted: list[tuple[HashKey, int]] = []
        self.holds: list[Counter[Hold]] = [Counter() for _ in range(num_blocks)]
        self.hashes: list[HashKey | None] = [None] * num_blocks
        self.lru: list[int] = []
        self.num_hashed = 0

    def held(self) -> list[int]:
        return [b for b, bag in enumerate(self.holds) if bag.total()]

    @rule(count=st.integers(0, 7), hold=holds)
    def allocate(self, count: int, hold: Hold) -> None:
        self.evicted.clear()
        unheld = len(self.holds) - len(self.held())
        num_plain = unheld - len(self.lru)
        blocks = self.pool.allocate(count, hold)
        if count > unheld:
            assert blocks is None
            return
        assert blocks is not None
        assert len(set(blocks)) == count
        assert not set(blocks) & set(self.held())
        victims = self.lru[: max(0, count - num_plain)]
        assert self.evicted == [(self.hashes[b], b) for b in victims]
        for block in blocks:
            self.hashes[block] = None
            self.holds[block][hold] += 1
        del self.lru[: len(victims)]

    @precondition(lambda self: self.held() or self.lru)
    @rule(data=st.data(), hold=holds)
    def hold(self, data: st.DataObject, hold: Hold) -> None:
        block = data.draw(st.sampled_from(self.held() + self.lru))
        self.pool.hold(block, hold)
        self.holds[block][hold] += 1
        if block in self.lru:
            self.lru.remove(block)

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.held()))
        hold = data.draw(st.sampled_from(sorted(+self.holds[block], key=str)))
        if hold[0] == "step":
            return  # the holds of a step end together
        self.pool.release(block, hold)
        self.drop(block, hold)

    @rule(number=st.sampled_from([1, 2]))
    def complete_step(self, number: int) -> None:
        before = list(self.lru)
        self.pool.complete_step(number)
        for block in self.held():
            for _ in range(self.holds[block][step(number)]):
                self.drop(block, step(number))
        added = set(self.lru) - set(before)
        self.lru = before + [b for b in self.pool._evictable if b in added]

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def set_hash(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.held()))
        self.num_hashed += 1
        self.hashes[block] = (0, self.num_hashed.to_bytes(4, "little"))
        self.pool.set_hash(block, self.hashes[block])

    @precondition(lambda self: any(self.hashes))
    @rule(data=st.data())
    def drop_hash(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from([b for b, key in enumerate(self.hashes) if key]))
        self.pool.set_hash(block, None)
        self.hashes[block] = None
        if block in self.lru:
            self.lru.remove(block)

    @invariant()
    def agrees(self) -> None:
        self.pool.check_integrity()
        assert self.pool.num_free == len(self.holds) - len(self.held())
        assert list(self.pool._evictable) == self.lru
        steps = [sum(n for hold, n in bag.items() if hold[0] == "step") for bag in self.holds]
        assert self.pool.num_releasing == sum(0 < n == bag.total() for n, bag in zip(steps, self.holds, strict=True))
        for block, bag in enumerate(self.holds):
            assert self.pool.num_holds(block) == bag.total()
            assert all(self.pool.num_holds(block, hold) == bag[hold] for hold in HOLDS)
            assert self.pool.hash_of(block) == self.hashes[block]

    def drop(self, block: int, hold: Hold) -> None:
        self.holds[block][hold] -= 1
        if not self.holds[block].total() and self.hashes[block]:
            self.lru.append(block)


BlockPoolMachine.TestCase.settings = settings(
    max_examples=50, stateful_step_count=40, deadline=None, database=None, print_blob=True
)
TestBlockPool = BlockPoolMachine.TestCase
