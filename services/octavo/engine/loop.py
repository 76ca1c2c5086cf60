"""The engine loop: drain commands, step, send one `StepDone` per step; a blocking poll when there is nothing to do."""

from __future__ import annotations

import logging
import time
from typing import Protocol

from octavo import faults
from octavo.engine.protocol import StepEngine
from octavo.errors import InternalError, OctavoError
from octavo.heartbeat import BEAT_PERIOD_S
from octavo.request import FINISH_ERROR, Emission, Request
from octavo.wire.message import (
    AbortWork,
    EngineStats,
    FromEngine,
    PauseWork,
    RequestState,
    Shutdown,
    StepDone,
    SubmitWork,
    ToEngine,
)

logger = logging.getLogger(__name__)

STALLED_POLL_S = 0.02
"""Requests exist but none can run (all paused, or all wait): look again after this, or at the next command."""
STATES_EVERY_S = 0.25


class LoopEngine(StepEngine, Protocol):
    """What the loop needs beyond `StepEngine` (`octavo.engine.core.EngineCore` has it)."""

    def abort_request(
        self, request_id: str, sequences: list[int] | None = None, attempt: int | None = None
    ) -> None: ...

    def set_paused(self, request_ids: list[str], is_paused: bool) -> None: ...

    def advance(self, now_s: float) -> None:
        """Move the time (Unix seconds) on: deadlines, and the memory of ended requests."""
        ...

    def stats(self) -> EngineStats: ...

    def states(self) -> list[RequestState]: ...

    def check_integrity(self) -> None: ...

    def close(self) -> None: ...


class Channel(Protocol):
    """The pair to the front; see `octavo.wire.channel.EngineChannel`."""

    is_orphan: bool

    def send(self, message: FromEngine) -> None: ...

    def receive(self, timeout_s: float) -> list[ToEngine]: ...


class Beat(Protocol):
    def beat(self) -> None: ...


def refusal(request: Request, error: OctavoError) -> list[Emission]:
    """The last emissions of a request that the engine will not run, one per sequence."""
    return [
        Emission(
            request.request_id,
            request.attempt,
            s.index,
            len(s.output_token_ids),
            [],
            finish_reason=FINISH_ERROR,
            error=error.detail(),
        )
        for s in request.sequences
    ]


class EngineLoop:
    """Runs one engine until `Shutdown` (returns 0) or until the front is gone (returns 1).

    An exception of `engine.step` is a fault of the whole engine and propagates; anything a single request causes
    becomes that request's last emission.
    """

    def __init__(self, engine: LoopEngine, channel: Channel, heartbeat: Beat) -> None:
        self._engine = engine
        self._channel = channel
        self._heartbeat = heartbeat
        self._is_stopping = False
        self._refused: list[Emission] = []
        self._states_due_s = 0.0

    def run(self) -> int:
        is_busy, poll_s = False, BEAT_PERIOD_S
        while True:
            self._heartbeat.beat()
            for command in self._channel.receive(poll_s):
                self._apply(command)
            if self._channel.is_orphan:
                return 1
            if self._is_stopping:
                return 0
            self._engine.advance(time.time())
            if self._engine.has_unfinished_requests() or self._refused:
                is_busy, poll_s = True, self._step()
            else:
                if is_busy:
                    self._engine.check_integrity()
                    self._channel.send(StepDone([], self._engine.stats()))
                is_busy, poll_s = False, BEAT_PERIOD_S

    def _step(self) -> float:
        """One step; returns how long the next poll may block."""
        faults.point("engine.step")
        start_s = time.monotonic()
        emissions, self._refused = self._refused, []
        emissions += self._engine.step()
        now_s = time.monotonic()
        stats = self._engine.stats()
        stats.step_ms = (now_s - start_s) * 1000
        is_stalled = not emissions and stats.num_step_tokens == 0
        are_states_due = now_s >= self._states_due_s
        if are_states_due or not is_stalled:
            states = self._engine.states() if are_states_due else []
            if are_states_due:
                self._states_due_s = now_s + STATES_EVERY_S
            self._channel.send(StepDone(emissions, stats, states))
        return STALLED_POLL_S if is_stalled else 0.0

    def _apply(self, command: ToEngine) -> None:
        match command:
            case SubmitWork(request=request):
                self._add(request)
            case AbortWork():
                self._engine.abort_request(command.request_id, command.sequences, command.attempt)
            case PauseWork():
                self._engine.set_paused(command.request_ids, command.is_paused)
            case Shutdown():
                self._is_stopping = True

    def _add(self, request: Request) -> None:
        try:
            self._engine.add_request(request)
        except OctavoError as error:
            self._refused += refusal(request, error)
        except Exception:
            logger.exception("adding request %s failed", request.request_id)
            self._refused += refusal(request, InternalError("the engine could not add this request"))
