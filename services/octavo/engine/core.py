"""`EngineCore`: the loop around scheduler and executor.

Plan, execute, update; what comes out are emissions.  An error of a request is its last emission, never a raise; an
exception of the executor ends the engine.  The loop has no clock: `advance` gets the time, in Unix seconds, from
whoever drives it, and moves deadlines and the memory of ended requests on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from octavo.engine.attempt import AttemptFence, Verdict
from octavo.engine.plan import StepPlan, StepResult
from octavo.engine.reservation import Reservation
from octavo.engine.scheduler import Scheduler
from octavo.request import FINISH_ABORT, Emission, Request
from octavo.wire.message import EngineStats, RequestState


class Executor(Protocol):
    """Runs plans on N ranks."""

    def execute(self, plan: StepPlan) -> StepResult:
        """Run one plan to its end; an exception means that the engine cannot go on."""
        ...

    def close(self) -> None:
        """End the ranks and free what they hold; idempotent."""
        ...


@runtime_checkable
class AheadExecutor(Executor, Protocol):
    """An executor that takes a plan before the one before it has ended."""

    num_ahead: int
    """How many plans may be in flight beside the one that is waited for."""

    def submit(self, plan: StepPlan) -> Callable[[], StepResult]:
        """Start a plan; the result, to be called once and in the order of submission, waits for its end."""
        ...


class EngineCore:
    """One engine.  Satisfies `EngineProtocol`; used by one thread.

    With an `AheadExecutor`, step N + 1 is planned and started before step N's result is waited for.
    """

    def __init__(self, scheduler: Scheduler, executor: Executor) -> None:
        self.scheduler = scheduler
        self.executor = executor
        self._fence = AttemptFence()
        self._ahead = executor if isinstance(executor, AheadExecutor) else None
        self._in_flight: deque[Callable[[], StepResult]] = deque()
        self._pending: list[Emission] = []
        self._is_closed = False
        self._was_idle = True

    def add_request(self, request: Request) -> None:
        """Queue a request; idempotent by (request id, attempt).

        A higher attempt takes the place of a live lower one.  An attempt that was aborted before it came ends with
        `abort`.  Raises `StaleAttempt`, `InvalidInput`, `TooLong` or `Busy`; a refused attempt may be submitted again.
        """
        request_id, attempt = request.key
        verdict = self._fence.judge(request_id, attempt)
        if verdict is Verdict.REPEATED:
            return
        if verdict is Verdict.ABORTED:
            self._fence.record(request_id, attempt)
            self._fence.end(request_id)
            self._pending += [
                Emission(request_id, attempt, branch.index, len(branch.output_token_ids), [], None, FINISH_ABORT)
                for branch in request.sequences
            ]
            return
        self.scheduler.spec.check_request(request)
        self._collect(self.scheduler.abort(request_id))
        emissions = self.scheduler.add(request)
        self._fence.record(request_id, attempt)
        self._was_idle = False
        self._collect(emissions)

    def abort_request(self, request_id: str, sequences: list[int] | None = None, attempt: int | None = None) -> None:
        """End a request (any attempt up to `attempt`; None: the live one), or only some of its sequences.

        Its last emissions, with `abort`, come from the next `step`.  With an `attempt` that was never submitted, a
        whole abort leaves a tombstone that answers the submit when it comes.
        """
        live = self.scheduler.attempt_of(request_id)
        if attempt is not None and sequences is None and (live is None or live < attempt):
            self._fence.bury(request_id, attempt)
            if live is None:
                self._fence.end(request_id)
        if live is not None and (attempt is None or live <= attempt):
            self._collect(self.scheduler.abort(request_id, sequences))

    def grant_pages(self) -> list[Reservation]:
        """Decode legs whose blocks are there now; pages may be written into them until `end_pages`."""
        return self.scheduler.grant_pages()

    def end_pages(self, transfer_id: str, num_tokens: int, first_tokens: dict[int, int], is_complete: bool) -> None:
        """A decode leg's transfer has ended; see `Scheduler.end_pages`."""
        self._collect(self.scheduler.end_pages(transfer_id, num_tokens, first_tokens, is_complete))

    def set_paused(self, request_ids: Iterable[str], is_paused: bool) -> None:
        """Stop or go on scheduling these requests; unknown ones are ignored."""
        for request_id in request_ids:
            self.scheduler.set_paused(request_id, is_paused)

    def advance(self, now_s: float) -> None:
        """Move the time to `now_s` (Unix): end requests past their deadline, forget what ended long ago."""
        self._fence.expire(now_s)
        self._collect(self.scheduler.expire(now_s))

    def step(self, now_s: float | None = None) -> list[Emission]:
        """Run one step, if there is anything to compute, and return all that came out since the last call."""
        if now_s is not None:
            self.advance(now_s)
        plan = self.scheduler.plan()
        if plan is not None and self._ahead is None:
            self._collect(self.scheduler.update(self.executor.execute(plan)))
        elif self._ahead is not None:
            self._run_ahead(self._ahead, plan)
        if not self.scheduler.has_unfinished and not self._was_idle:
            self.check_integrity()
            self._was_idle = True
        out, self._pending = self._pending, []
        return out

    def _run_ahead(self, executor: AheadExecutor, plan: StepPlan | None) -> None:
        """Start `plan`; take results until no more steps are in flight than may be, none once nothing is live."""
        if plan is not None:
            self._in_flight.append(executor.submit(plan))
        num_left = executor.num_ahead if plan is not None else max(len(self._in_flight) - 1, 0)
        while len(self._in_flight) > num_left or (self._in_flight and not self.scheduler.has_unfinished):
            self._collect(self.scheduler.update(self._in_flight.popleft()()))

    def has_unfinished_requests(self) -> bool:
        """Whether a request is live, or emissions wait to be collected by `step`."""
        return self.scheduler.has_unfinished or bool(self._pending)

    def stats(self) -> EngineStats:
        """Gauges and counters; `step_ms` is left to the caller, which has a clock."""
        return self.scheduler.stats()

    def states(self) -> list[RequestState]:
        """Where every live request is."""
        return self.scheduler.states()

    def check_integrity(self) -> None:
        """Raise `InternalError` when a block, slot or request is unaccounted for; runs whenever the engine is idle."""
        self.scheduler.check_integrity()

    def close(self) -> None:
        """End the executor; live requests get no further emission."""
        if not self._is_closed:
            self._is_closed = True
            self.executor.close()

    def _collect(self, emissions: list[Emission]) -> None:
        for emission in emissions:
            if emission.finish_reason is not None and self.scheduler.attempt_of(emission.request_id) is None:
                self._fence.end(emission.request_id)
        self._pending += emissions
