"""The core with an executor that takes the next plan before it has the last result."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from engine_kit import FakeExecutor, make_request, make_spec, oracle, run_all
from octavo.engine.core import EngineCore
from octavo.engine.plan import StepPlan, StepResult
from octavo.engine.scheduler import Scheduler


@dataclass
class Ahead(FakeExecutor):
    """Runs a plan when its result is asked for, in the order of submission."""

    num_ahead: int = 1
    most_in_flight: int = 0
    waiting: deque[StepPlan] = field(default_factory=deque)

    def submit(self, plan: StepPlan) -> Callable[[], StepResult]:
        self.waiting.append(plan)
        self.most_in_flight = max(self.most_in_flight, len(self.waiting))

        def result() -> StepResult:
            assert self.waiting[0] is plan, "results are asked for in order"
            return self.execute(self.waiting.popleft())

        return result


def make_ahead(**changes: object) -> tuple[EngineCore, Ahead]:
    spec = make_spec(**changes)
    executor = Ahead(spec)
    return EngineCore(Scheduler(spec), executor), executor


@pytest.mark.parametrize("num_blocks", [64, 8], ids=["roomy", "with-preemption"])
@pytest.mark.parametrize("ignore_eos", [True, False])
def test_the_tokens_are_those_of_one_step_at_a_time(num_blocks: int, ignore_eos: bool) -> None:
    core, executor = make_ahead(num_blocks=num_blocks)
    requests = [make_request(f"r{i}", range(i, i + 9 + i), max_tokens=12, ignore_eos=ignore_eos) for i in range(6)]
    for request in requests:
        core.add_request(request)
    outcomes = run_all(core).outcomes
    for request in requests:
        assert outcomes[request.request_id, 0, 0].token_ids == oracle(request, 0, executor.spec)
    assert executor.most_in_flight == 2
    assert not executor.waiting, "nothing is left in flight"
    core.check_integrity()


def test_an_abort_leaves_nothing_in_flight() -> None:
    core, executor = make_ahead()
    core.add_request(make_request("r", range(20)))
    core.step()
    core.step()
    core.abort_request("r")
    run_all(core)
    assert not executor.waiting
    core.check_integrity()
