"""`PrefixCache` against a model: a dictionary of what was published, less what its events say was removed."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octavo.engine.block_pool import BlockPool
from octavo.engine.prefix_cache import STORED, CacheEvent, PrefixCache

NUM_BLOCKS = 8
hashes = st.integers(0, 5).map(lambda i: bytes([i]) * 16)


class PrefixCacheMachine(RuleBasedStateMachine):
    @initialize(num_groups=st.integers(1, 2))
    def start(self, num_groups: int) -> None:
        self.events: list[CacheEvent] = []
        self.num_groups = num_groups
        self.pool = BlockPool(NUM_BLOCKS)
        self.cache = PrefixCache(self.pool, num_groups, on_event=self.events.append)
        self.held: list[int] = []
        self.entries: dict[tuple[int, bytes], int] = {}

    @rule(count=st.integers(1, 3))
    def allocate(self, count: int) -> None:
        num_events = len(self.events)
        blocks = self.pool.allocate(count)
        for event in self.events[num_events:]:
            block = self.entries.pop((event.group, event.block_hash))
            assert blocks is not None
            assert block in blocks
        self.held += blocks or []

    @precondition(lambda self: self.held)
    @rule(data=st.data(), block_hash=hashes)
    def publish(self, data: st.DataObject, block_hash: bytes) -> None:
        block, group = data.draw(st.sampled_from(self.held)), data.draw(st.integers(0, self.num_groups - 1))
        is_new = (group, block_hash) not in self.entries and block not in self.entries.values()
        assert self.cache.publish(group, block_hash, block) is is_new
        if is_new:
            self.entries[group, block_hash] = block

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.held))
        self.held.remove(block)
        self.pool.release(block)

    @rule(wanted=st.lists(hashes, max_size=4))
    def match(self, wanted: list[bytes]) -> None:
        found = self.cache.match(wanted)
        length = 0
        while length < len(wanted) and all((g, wanted[length]) in self.entries for g in range(self.num_groups)):
            length += 1
        assert found == [[self.entries[g, h] for h in wanted[:length]] for g in range(self.num_groups)]
        for blocks in found:
            for block in blocks:
                self.pool.hold(block)
                self.held.append(block)

    @rule()
    def clear(self) -> None:
        self.cache.clear()
        self.entries.clear()

    @invariant()
    def agrees(self) -> None:
        self.pool.check_integrity()
        self.cache.check_integrity()
        assert len(self.cache) == len(self.entries)

    @invariant()
    def events_rebuild_the_entries(self) -> None:
        known: set[tuple[int, bytes]] = set()
        for number, event in enumerate(self.events, 1):
            assert event.sequence == number
            key = (event.group, event.block_hash)
            assert (key in known) is (event.kind != STORED)
            known ^= {key}
        assert known == self.entries.keys()


PrefixCacheMachine.TestCase.settings = settings(
    max_examples=50, stateful_step_count=40, deadline=None, database=None, print_blob=True
)
TestPrefixCache = PrefixCacheMachine.TestCase
