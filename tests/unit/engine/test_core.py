"""The core's attempts, aborts, deadlines and errors."""

from __future__ import annotations

import pytest

from engine_kit import FakeExecutor, make_core, make_request, make_spec, oracle, run_all
from octavo.engine.core import EngineCore
from octavo.engine.plan import StepPlan, StepResult
from octavo.engine.protocol import EngineProtocol
from octavo.engine.scheduler import Scheduler
from octavo.errors import ErrorDetail, InternalError, StaleAttempt


def test_the_core_satisfies_the_engine_protocol() -> None:
    assert isinstance(make_core(), EngineProtocol)


def test_a_repeated_submit_is_ignored() -> None:
    core = make_core()
    for _ in range(2):
        core.add_request(make_request("r", range(9)))
    assert len(run_all(core).outcomes) == 1


def test_a_submit_repeated_after_the_end_is_ignored() -> None:
    core = make_core()
    core.add_request(make_request("r", range(9)))
    run_all(core)
    core.add_request(make_request("r", range(9)))
    assert not core.has_unfinished_requests()


def test_a_lower_attempt_is_stale() -> None:
    core = make_core()
    core.add_request(make_request("r", range(9), attempt=2))
    with pytest.raises(StaleAttempt):
        core.add_request(make_request("r", range(9), attempt=1))


def test_a_higher_attempt_takes_over() -> None:
    core = make_core()
    core.add_request(make_request("r", range(9), attempt=0))
    core.step()
    core.add_request(make_request("r", range(9), attempt=1))
    outcomes = run_all(core).outcomes
    assert outcomes["r", 0, 0].finish_reason == "abort"
    assert outcomes["r", 1, 0].finish_reason == "length"


def test_an_abort_before_the_submit_answers_it() -> None:
    core = make_core()
    core.abort_request("r", attempt=0)
    core.add_request(make_request("r", range(9)))
    assert [e.finish_reason for e in core.step()] == ["abort"]


def test_a_tombstone_is_forgotten_after_its_time() -> None:
    core = make_core()
    core.advance(1000.0)
    core.abort_request("r", attempt=0)
    core.advance(1061.0)
    core.add_request(make_request("r", range(9)))
    assert run_all(core).outcomes["r", 0, 0].finish_reason == "length"


def test_an_abort_of_an_older_attempt_leaves_the_live_one() -> None:
    core = make_core()
    core.add_request(make_request("r", range(9), attempt=1))
    core.abort_request("r", attempt=0)
    assert run_all(core).outcomes["r", 1, 0].finish_reason == "length"


def test_an_abort_frees_every_block() -> None:
    core = make_core()
    core.add_request(make_request("r", range(40), n=3))
    for _ in range(3):
        core.step()
    core.abort_request("r")
    assert core.stats().num_free_blocks == 64


def test_one_branch_can_be_aborted() -> None:
    core = make_core()
    core.add_request(make_request("r", range(40), n=2))
    core.abort_request("r", [1])
    outcomes = run_all(core).outcomes
    assert [outcomes["r", 0, i].finish_reason for i in range(2)] == ["length", "abort"]


def test_a_deadline_ends_a_request_with_an_error() -> None:
    core = make_core()
    core.add_request(make_request("r", range(9), deadline_unix_s=50.0))
    (emission,) = core.step(now_s=50.0)
    assert emission.finish_reason == "error"
    assert emission.error is not None
    assert emission.error.code == "deadline_exceeded"


class FailingExecutor(FakeExecutor):
    """Reports an error for the row of one slot."""

    def execute(self, plan: StepPlan) -> StepResult:
        result = super().execute(plan)
        for sampled in result.sampled:
            if sampled.slot == 0:
                sampled.error = ErrorDetail("internal", "no token is allowed")
        return result


def test_an_error_of_a_row_ends_only_its_request() -> None:
    spec = make_spec()
    core = EngineCore(Scheduler(spec), FailingExecutor(spec))
    good = make_request("good", range(9))
    core.add_request(make_request("bad", range(9)))
    core.add_request(good)
    outcomes = run_all(core).outcomes
    assert outcomes["bad", 0, 0].finish_reason == "error"
    assert outcomes["good", 0, 0].token_ids == oracle(good, 0, spec)


class LosingExecutor(FakeExecutor):
    """Returns no rows."""

    def execute(self, plan: StepPlan) -> StepResult:
        return StepResult(plan.step, [])


def test_a_result_that_does_not_belong_to_the_plan_is_fatal() -> None:
    spec = make_spec()
    core = EngineCore(Scheduler(spec), LosingExecutor(spec))
    core.add_request(make_request("r", range(9)))
    with pytest.raises(InternalError, match="planned"):
        core.step()


def test_states_name_what_each_request_does() -> None:
    core = make_core(max_num_seqs=1)
    for name in "ab":
        core.add_request(make_request(name, range(9)))
    core.step()
    assert [(s.request_id, s.state) for s in core.states()] == [("a", "running"), ("b", "queued")]
