"""`RankExecutor`: runs each plan on all ranks of an engine, also when there is one."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from octavo.engine.parallel.launch import RankProcess
from octavo.engine.plan import StepPlan, StepResult
from octavo.engine.runner.gpu_runner import GpuRunner
from octavo.engine.runner.runner import Runner
from octavo.errors import InternalError


class RankExecutor:
    """Rank 0 in this process, the others as children that get the plan as msgpack bytes.

    All ranks hold the same slots; the plan carries differences only.  A rank that is gone makes `execute` raise: the
    ranks are one incarnation, and it ends.
    """

    def __init__(self, runner: Runner, ranks: list[RankProcess]) -> None:
        self.runner = runner
        self.ranks = ranks
        self._encoder = msgspec.msgpack.Encoder()
        self._is_closed = False

    def execute(self, plan: StepPlan) -> StepResult:
        """Run one plan on every rank; the result is rank 0's.  Raises `InternalError` when a rank is gone."""
        if self._is_closed:
            raise InternalError("the executor is closed")
        if self.ranks:
            frame = self._encoder.encode(plan)
            for rank in self.ranks:
                rank.send(frame)
        return self.runner.execute(plan)

    def close(self) -> None:
        """End the ranks; idempotent."""
        self._is_closed = True
        self.runner.comm.close()
        for rank in self.ranks:
            rank.end()
        self.ranks = []


class GpuExecutor:
    """One rank on a GPU, in this process, which takes the next plan while it runs one."""

    num_ahead = 1

    def __init__(self, runner: GpuRunner) -> None:
        self.runner = runner
        self._is_closed = False

    def execute(self, plan: StepPlan) -> StepResult:
        """Run one plan to its end."""
        return self.submit(plan)()

    def submit(self, plan: StepPlan) -> Callable[[], StepResult]:
        """Start a plan; see `octavo.engine.core.AheadExecutor`."""
        if self._is_closed:
            raise InternalError("the executor is closed")
        return self.runner.submit(plan)

    def close(self) -> None:
        """Take no more plans; idempotent."""
        self._is_closed = True


def make_executor(runner: Runner, ranks: list[RankProcess]) -> RankExecutor | GpuExecutor:
    """The executor for rank 0's runner and the other ranks."""
    if isinstance(runner, GpuRunner) and not ranks:
        return GpuExecutor(runner)
    return RankExecutor(runner, ranks)
