"""The scheduler against an oracle without blocks, cache, batching or preemption.

The executor reads every token back from its blocks, so a lost, stale or foreign block changes or stops the test.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine_kit import Collector, FakeExecutor, make_core, make_request, make_spec, oracle, run_all
from octavo.engine.plan import StepPlan
from octavo.engine.scheduler import Scheduler
from octavo.request import Request

MAX_LEN = 96
MAX_STEPS = 10_000
"""More than the tokens of all requests of an example."""


class SchedulerMachine(RuleBasedStateMachine):
    """Adds, pauses and aborts requests; plans run up to two steps ahead of their results."""

    @initialize(
        num_groups=st.integers(1, 2),
        num_sequences_in_pool=st.integers(1, 4),
        budget=st.sampled_from([5, 16, 33, 200]),
        max_num_seqs=st.integers(1, 6),
        policy=st.sampled_from(["fcfs", "priority"]),
        is_chunked=st.booleans(),
        has_cache=st.booleans(),
        max_ahead=st.integers(1, 3),
    )
    def start(
        self,
        num_groups: int,
        num_sequences_in_pool: int,
        budget: int,
        max_num_seqs: int,
        policy: str,
        is_chunked: bool,
        has_cache: bool,
        max_ahead: int,
    ) -> None:
        self.spec = make_spec(
            num_groups=num_groups,
            num_blocks=num_groups * num_sequences_in_pool * MAX_LEN // 16,
            max_model_len=MAX_LEN,
            max_num_batched_tokens=budget,
            max_num_seqs=max_num_seqs,
            policy=policy,
            enable_chunked_prefill=is_chunked,
            enable_prefix_caching=has_cache,
        )
        self.scheduler = Scheduler(self.spec)
        self.executor = FakeExecutor(self.spec)
        self.collector = Collector()
        self.requests: dict[str, Request] = {}
        self.cut: set[tuple[str, int]] = set()
        self.in_flight: list[StepPlan] = []
        self.max_ahead = max_ahead

    @rule(
        family=st.integers(0, 2),
        length=st.integers(1, 70),
        n=st.sampled_from([1, 1, 1, 2, 4]),
        max_tokens=st.sampled_from([None, 1, 2, 9, 25]),
        priority=st.integers(0, 3),
        num_known=st.sampled_from([0, 0, 0, 1, 5]),
        has_eos=st.booleans(),
    )
    def add(
        self, family: int, length: int, n: int, max_tokens: int | None, priority: int, num_known: int, has_eos: bool
    ) -> None:
        request_id = str(len(self.requests))
        prompt = [(family * 31 + i * i) % 90 + 1 for i in range(length)]
        request = make_request(
            request_id, prompt, n=n, max_tokens=max_tokens, priority=priority, ignore_eos=not has_eos
        )
        if num_known:
            outputs = {i: oracle(request, i, self.spec)[:num_known] for i in range(n)}
            request = make_request(
                request_id,
                prompt,
                n=n,
                max_tokens=max_tokens,
                priority=priority,
                ignore_eos=not has_eos,
                outputs=outputs,
            )
        self.requests[request_id] = request
        self.collector.take(self.scheduler.add(request))

    @rule(count=st.integers(1, 6))
    def run(self, count: int) -> None:
        for _ in range(count):
            self.advance()

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), is_paused=st.booleans())
    def pause(self, data: st.DataObject, is_paused: bool) -> None:
        self.scheduler.set_paused(data.draw(st.sampled_from(sorted(self.requests))), is_paused)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), indexes=st.none() | st.just([0]))
    def abort(self, data: st.DataObject, indexes: list[int] | None) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.requests)))
        emissions = self.scheduler.abort(request_id, indexes)
        self.cut |= {(request_id, e.sequence) for e in emissions}
        self.collector.take(emissions)

    @invariant()
    def is_sound(self) -> None:
        self.scheduler.check_integrity()

    def advance(self) -> bool:
        """Plan ahead as far as allowed, then take the oldest result; False when there is nothing to do."""
        while len(self.in_flight) < self.max_ahead:
            plan = self.scheduler.plan()
            if plan is None:
                break
            self.in_flight.append(plan)
        if not self.in_flight:
            return False
        self.collector.take(self.scheduler.update(self.executor.execute(self.in_flight.pop(0))))
        return True

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for request_id in self.requests:
            self.scheduler.set_paused(request_id, False)
        for _ in range(MAX_STEPS):
            if not self.scheduler.has_unfinished:
                break
            assert self.advance(), f"stuck: {self.scheduler.states()}"
        assert not self.scheduler.has_unfinished, f"no end in sight: {self.scheduler.states()}"
        while self.advance():
            pass
        self.scheduler.check_integrity()
        assert self.scheduler.pool.num_free == self.spec.num_blocks
        check_outcomes(self.collector, self.requests, self.scheduler, self.cut)


def check_outcomes(
    collector: Collector, requests: dict[str, Request], scheduler: Scheduler, cut: set[tuple[str, int]]
) -> None:
    """Every branch has ended, and its tokens are the oracle's (a prefix of them when it was aborted)."""
    for request in requests.values():
        for branch in request.sequences:
            outcome = collector.outcomes[request.request_id, request.attempt, branch.index]
            assert outcome.finish_reason is not None
            expected = oracle(request, branch.index, scheduler.spec)
            known = len(branch.output_token_ids)
            got = [*branch.output_token_ids, *outcome.token_ids[known:]]
            if (request.request_id, branch.index) in cut:
                expected = expected[: len(got)]
            assert got == expected


SchedulerMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, database=None, print_blob=True
)
TestScheduler = SchedulerMachine.TestCase


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_a_crowd_ends_under_pressure(seed: int, policy: str) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    core = make_core(
        num_groups=1 + seed % 2,
        num_blocks=(1 + seed % 2) * rng.randint(6, 20),
        max_model_len=MAX_LEN,
        max_num_seqs=rng.randint(2, 16),
        max_num_batched_tokens=rng.choice([16, 40, 128]),
        policy=policy,
    )
    requests = {}
    for i in range(40):
        prompt = [rng.randint(1, 3)] * rng.randint(1, 40) + [i + 1]
        request = make_request(str(i), prompt, n=rng.choice([1, 1, 3]), max_tokens=rng.randint(1, 50), priority=i % 4)
        requests[str(i)] = request
        core.add_request(request)
    collector = run_all(core)
    check_outcomes(collector, requests, core.scheduler, set())


@settings(max_examples=25, deadline=None, database=None, print_blob=True)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_requests_end_in_order_of_priority_then_arrival(priorities: list[int]) -> None:
    core = make_core(policy="priority", max_num_seqs=1)
    for i, level in enumerate(priorities):
        core.add_request(make_request(str(i), [1, 2, i], priority=level, max_tokens=2))
    ended: list[int] = []
    while core.has_unfinished_requests():
        ended += [int(e.request_id) for e in core.step() if e.finish_reason]
    assert ended == sorted(range(len(priorities)), key=lambda i: (priorities[i], i))
