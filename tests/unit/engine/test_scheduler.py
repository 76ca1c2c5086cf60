"""The scheduler, through the core and an executor that checks every block it reads."""

from __future__ import annotations

import pytest

from engine_kit import FakeExecutor, make_core, make_request, make_spec, oracle, run_all
from octavo.engine.core import EngineCore
from octavo.engine.plan import SampledToken, StepResult
from octavo.engine.scheduler import Scheduler
from octavo.errors import Busy, ErrorDetail, InvalidInput, TooLong


def plans(core: EngineCore) -> FakeExecutor:
    assert isinstance(core.executor, FakeExecutor)
    return core.executor


def test_one_request_gives_the_oracles_tokens() -> None:
    core = make_core()
    request = make_request("r", range(1, 21), max_tokens=30)
    core.add_request(request)
    outcome = run_all(core).outcomes["r", 0, 0]
    assert outcome.token_ids == oracle(request, 0, core.scheduler.spec)
    assert outcome.finish_reason == "length"


def test_a_long_prompt_is_cut_into_chunks_of_the_budget() -> None:
    core = make_core(max_num_batched_tokens=32)
    core.add_request(make_request("r", [1] * 80, max_tokens=1))
    run_all(core)
    assert [p.num_tokens for p in plans(core).plans] == [32, 32, 16]


def test_without_chunking_a_prompt_beyond_the_budget_runs_whole() -> None:
    core = make_core(max_num_batched_tokens=32, enable_chunked_prefill=False)
    core.add_request(make_request("r", [1] * 80, max_tokens=1))
    run_all(core)
    assert [p.num_tokens for p in plans(core).plans] == [80]


def test_sixteen_sequences_finish_on_a_pool_that_holds_two() -> None:
    core = make_core(num_blocks=8, max_model_len=64, max_num_seqs=16)
    requests = [make_request(str(i), range(i, i + 20), max_tokens=40) for i in range(16)]
    for request in requests:
        core.add_request(request)
    outcomes = run_all(core).outcomes
    assert core.stats().num_preemptions > 0
    assert all(outcomes[r.request_id, 0, 0].token_ids == oracle(r, 0, core.scheduler.spec) for r in requests)


def test_a_second_prompt_hits_the_blocks_of_the_first() -> None:
    core = make_core()
    for name in "ab":
        core.add_request(make_request(name, range(40)))
        outcome = run_all(core).outcomes[name, 0, 0]
    assert outcome.num_cached_tokens == 32


def test_a_prompt_is_never_found_whole() -> None:
    core = make_core()
    for name in "ab":
        core.add_request(make_request(name, range(32)))
        outcome = run_all(core).outcomes[name, 0, 0]
    assert outcome.num_cached_tokens == 16


def test_namespaces_share_nothing() -> None:
    core = make_core()
    for name in "ab":
        core.add_request(make_request(name, range(40), namespace=name.encode()))
        outcome = run_all(core).outcomes[name, 0, 0]
    assert outcome.num_cached_tokens == 0


def test_without_prefix_caching_nothing_is_found() -> None:
    core = make_core(enable_prefix_caching=False)
    for name in "ab":
        core.add_request(make_request(name, range(40)))
        outcome = run_all(core).outcomes[name, 0, 0]
    assert outcome.num_cached_tokens == 0


@pytest.mark.parametrize("num_prompt", [5, 16, 17, 40, 48])
def test_branches_fork_and_compute_the_prompt_once(num_prompt: int) -> None:
    core = make_core(enable_prefix_caching=False)
    request = make_request("r", range(num_prompt), n=3, max_tokens=20)
    core.add_request(request)
    outcomes = run_all(core).outcomes
    assert [outcomes["r", 0, i].token_ids for i in range(3)] == [
        oracle(request, i, core.scheduler.spec) for i in range(3)
    ]
    assert plans(core).num_tokens == num_prompt + 2 + 3 * 19


@pytest.mark.parametrize(("num_prompt", "num_copies"), [(20, 2), (16, 2), (17, 0)])
def test_a_fork_copies_what_precedes_the_last_prompt_token_in_its_block(num_prompt: int, num_copies: int) -> None:
    core = make_core(num_groups=2)
    core.add_request(make_request("r", range(num_prompt), n=2))
    run_all(core)
    assert sum(len(p.copies) for p in plans(core).plans) == num_copies


def test_a_resumed_branch_goes_on_after_its_outputs() -> None:
    core = make_core()
    whole = oracle(make_request("r", range(20), max_tokens=12), 0, core.scheduler.spec)
    core.add_request(make_request("r", range(20), attempt=1, outputs={0: whole[:5]}, max_tokens=12))
    assert run_all(core).outcomes["r", 1, 0].token_ids[5:] == whole[5:]


def test_a_branch_resumed_at_its_end_needs_no_step() -> None:
    core = make_core()
    core.add_request(make_request("r", range(20), outputs={0: [3, 4]}, max_tokens=2))
    assert run_all(core).outcomes["r", 0, 0].finish_reason == "length"
    assert not plans(core).plans


def test_eos_ends_a_sequence_without_a_stop_reason() -> None:
    eos = oracle(make_request("r", range(9)), 0, make_spec())[3]
    core = make_core(eos_token_ids=frozenset({eos}))
    core.add_request(make_request("r", range(9), ignore_eos=False))
    outcome = run_all(core).outcomes["r", 0, 0]
    assert (outcome.token_ids[-1], outcome.finish_reason, outcome.stop_reason) == (eos, "stop", None)


def test_a_stop_token_is_the_stop_reason() -> None:
    core = make_core()
    stop = oracle(make_request("r", range(9)), 0, core.scheduler.spec)[3]
    core.add_request(make_request("r", range(9), stop_token_ids=(stop,)))
    outcome = run_all(core).outcomes["r", 0, 0]
    assert (outcome.finish_reason, outcome.stop_reason) == ("stop", stop)


def test_min_tokens_holds_a_stop_token_off() -> None:
    core = make_core()
    stop = oracle(make_request("r", range(9)), 0, core.scheduler.spec)[0]
    core.add_request(make_request("r", range(9), stop_token_ids=(stop,), min_tokens=3))
    assert len(run_all(core).outcomes["r", 0, 0].token_ids) >= 3


def test_without_max_tokens_a_sequence_fills_the_context() -> None:
    core = make_core(max_model_len=50)
    core.add_request(make_request("r", range(9), max_tokens=None))
    outcome = run_all(core).outcomes["r", 0, 0]
    assert (len(outcome.token_ids), outcome.finish_reason) == (41, "length")


def test_slots_stay_from_admission_to_release() -> None:
    core = make_core(max_num_seqs=2)
    for i in range(5):
        core.add_request(make_request(str(i), range(i + 3), max_tokens=3 + i))
    run_all(core)
    admitted = [a.slot for p in plans(core).plans for a in p.admit]
    assert len(admitted) == 5
    assert set(admitted) == {0, 1}


@pytest.mark.parametrize(
    ("spec", "prompt", "max_tokens", "limit"),
    [
        ({"max_model_len": 40}, 40, None, "context holds 40"),
        ({"max_model_len": 40}, 30, 11, "at most 10 fit"),
        ({"num_blocks": 2}, 32, None, "at most 32 fit"),
        ({"num_blocks": 4, "num_groups": 2}, 20, 13, "at most 32 fit"),
    ],
)
def test_what_can_never_fit_is_refused_with_the_limit(
    spec: dict[str, int], prompt: int, max_tokens: int | None, limit: str
) -> None:
    core = make_core(**spec)
    with pytest.raises(TooLong, match=limit):
        core.add_request(make_request("r", [1] * prompt, max_tokens=max_tokens))
    assert not core.has_unfinished_requests()


def test_stats_of_a_step_without_work_count_no_tokens() -> None:
    core = make_core()
    core.add_request(make_request("r", range(20)))
    core.step()
    core.set_paused(["r"], True)
    core.step()
    assert core.stats().num_step_tokens == 0


def test_a_full_queue_is_busy() -> None:
    core = make_core(max_num_seqs=1, max_num_waiting=1)
    core.add_request(make_request("a", [1]))
    core.add_request(make_request("b", [1]))
    with pytest.raises(Busy):
        core.add_request(make_request("c", [1]))


@pytest.mark.parametrize("prompt", [[], [97], [-1]])
def test_bad_prompts_are_refused(prompt: list[int]) -> None:
    with pytest.raises(InvalidInput):
        make_core().add_request(make_request("r", prompt))


def test_a_paused_request_puts_out_nothing_and_keeps_its_blocks() -> None:
    core = make_core()
    core.add_request(make_request("r", range(20)))
    core.step()
    core.set_paused(["r"], True)
    assert core.step() == []
    assert core.stats().num_free_blocks == 62


def test_a_paused_request_gives_way_to_one_that_needs_its_room() -> None:
    core = make_core(num_blocks=4, max_model_len=64)
    core.add_request(make_request("slow", range(40), max_tokens=20))
    core.step()
    core.set_paused(["slow"], True)
    core.add_request(make_request("r", range(30, 80), max_tokens=4))
    emissions = [e for _ in range(6) for e in core.step()]
    assert {e.request_id for e in emissions} == {"r"}
    assert emissions[-1].finish_reason == "length"


def test_priority_runs_before_arrival() -> None:
    core = make_core(policy="priority", max_num_seqs=1)
    core.add_request(make_request("late", range(9), priority=1))
    core.add_request(make_request("soon", range(9), priority=0))
    order = [e.request_id for _ in range(30) for e in core.step() if e.finish_reason]
    assert order == ["soon", "late"]


def test_a_more_important_request_displaces_a_running_one() -> None:
    core = make_core(policy="priority", max_num_seqs=1)
    core.add_request(make_request("low", range(9), priority=5))
    core.step()
    core.add_request(make_request("high", range(9), priority=0))
    order = [e.request_id for _ in range(30) for e in core.step() if e.finish_reason]
    assert order == ["high", "low"]


def test_waiting_outweighs_priority_in_the_end() -> None:
    core = make_core(policy="priority", max_num_seqs=1, max_num_waiting=10_000)
    core.add_request(make_request("first", [1], max_tokens=1))
    core.add_request(make_request("old", [1], priority=1, max_tokens=1))
    finished: list[str] = []
    for i in range(600):
        core.add_request(make_request(f"new{i}", [1], max_tokens=1))
        finished += [e.request_id for e in core.step() if e.finish_reason]
    assert "old" in finished


def test_a_plan_may_come_before_the_result_of_the_last() -> None:
    spec = make_spec()
    scheduler, executor = Scheduler(spec), FakeExecutor(spec)
    request = make_request("r", range(20), max_tokens=6)
    scheduler.add(request)
    tokens: list[int] = []
    first = scheduler.plan()
    assert first is not None
    result = executor.execute(first)
    while scheduler.has_unfinished:
        ahead = scheduler.plan()
        tokens += [t for e in scheduler.update(result) for t in e.token_ids]
        if ahead is not None:
            result = executor.execute(ahead)
    assert tokens == oracle(request, 0, spec)


def test_blocks_of_an_aborted_request_wait_for_the_step_in_flight() -> None:
    spec = make_spec()
    scheduler, executor = Scheduler(spec), FakeExecutor(spec)
    scheduler.add(make_request("r", range(20)))
    plan = scheduler.plan()
    assert plan is not None
    scheduler.abort("r")
    assert scheduler.pool.num_free == 62
    assert scheduler.update(executor.execute(plan)) == []
    assert scheduler.pool.num_free == 64


def test_the_sequence_with_least_to_lose_is_preempted() -> None:
    core = make_core(num_blocks=6, max_model_len=96)
    core.add_request(make_request("long", range(1, 50), max_tokens=40))
    core.add_request(make_request("short", range(1, 12), max_tokens=40))
    while not core.stats().num_preemptions:
        core.step()
    assert {s.request_id: s.state for s in core.states()} == {"long": "running", "short": "preempted"}


def test_planning_ahead_computes_nothing_beyond_max_tokens() -> None:
    spec = make_spec()
    scheduler, executor = Scheduler(spec), FakeExecutor(spec)
    scheduler.add(make_request("r", range(20), max_tokens=1))
    first = scheduler.plan()
    assert first is not None
    assert scheduler.plan() is None
    scheduler.update(executor.execute(first))
    assert not scheduler.has_unfinished


def test_a_forked_block_outlives_its_owner_until_the_copy_is_done() -> None:
    spec = make_spec(max_num_seqs=2)
    scheduler, executor = Scheduler(spec), FakeExecutor(spec)
    scheduler.add(make_request("r", range(20), n=2, max_tokens=2))
    first = scheduler.plan()
    assert first is not None
    scheduler.update(executor.execute(first))
    second = scheduler.plan()
    assert second is not None
    (copied,) = second.copies
    scheduler.abort("r", [0])
    assert scheduler.pool.num_holds(copied.source) == 1


def test_running_sequences_decode_beside_a_prefill() -> None:
    core = make_core(max_num_batched_tokens=20)
    core.add_request(make_request("a", range(5)))
    core.step()
    core.add_request(make_request("b", [1] * 100))
    assert [e.request_id for e in core.step()] == ["a"]


def test_a_row_with_an_error_publishes_nothing() -> None:
    spec = make_spec()
    scheduler, executor = Scheduler(spec), FakeExecutor(spec)
    scheduler.add(make_request("r", range(20)))
    plan = scheduler.plan()
    assert plan is not None
    result = executor.execute(plan)
    result.sampled[0].error = ErrorDetail("internal", "not a number")
    scheduler.update(result)
    assert len(scheduler.cache) == 0


def test_a_chunk_that_failed_ends_its_request_and_publishes_nothing() -> None:
    spec = make_spec(max_num_batched_tokens=32)
    scheduler = Scheduler(spec)
    scheduler.add(make_request("r", range(80)))
    plan = scheduler.plan()
    assert plan is not None
    failed = SampledToken(plan.work[0].slot, -1, error=ErrorDetail("internal", "no such block"))
    (emission,) = scheduler.update(StepResult(plan.step, [failed]))
    assert emission.finish_reason == "error"
    assert len(scheduler.cache) == 0
