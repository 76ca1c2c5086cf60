"""`RequestTable`: the front's view of the requests of its engine, with what each has put out.

It answers Resend and Attach, fences attempts, remembers aborts of unknown requests, and knows who must be paused.
Pure: times are arguments (monotonic seconds).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from octavo.errors import Aborted, InvalidInput, StaleAttempt
from octavo.request import FINISH_ABORT, Emission, Request, TokenLogprobs
from octavo.rpc.session import SilentRequest
from octavo.wire.message import RequestState

RETAIN_S = 60.0
MAX_RETAINED = 4096
SILENT_S = 1.0
ENDED_REPORT_S = 5.0
"""Heartbeats name requests that ended this recently, so that a lost last frame is noticed."""


@dataclass
class SequenceOutput:
    """What one sequence has put out on this worker, from `first_index` on."""

    first_index: int
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] | None = None
    last: Emission | None = None
    num_cached_tokens: int = -1

    @property
    def num_output_tokens(self) -> int:
        return self.first_index + len(self.token_ids)

    @property
    def is_finished(self) -> bool:
        return self.last is not None


@dataclass
class WorkRequest:
    """One request at its newest attempt."""

    request_id: str
    attempt: int
    session_id: str
    outputs: dict[int, SequenceOutput]
    last_output_s: float
    ended_s: float | None = None
    state: str = "queued"
    is_paused_by_client: bool = False
    is_paused: bool = False
    """Whether the engine was told to pause it."""


class RequestTable:
    """Verbs: `admit`, `record`, `note_states`, `abort`, `attach`, `replay`, `pause`, `sweep`; the rest are views."""

    def __init__(self) -> None:
        self._requests: dict[str, WorkRequest] = {}
        self._live: dict[str, WorkRequest] = {}
        self._tombstones: dict[str, tuple[int, float]] = {}

    # --- verbs ---

    def admit(self, request: Request, session_id: str, now_s: float) -> tuple[WorkRequest, WorkRequest | None]:
        """Take a submit that is not known yet: (its entry, the older live attempt that it replaces).

        Raises `StaleAttempt` below the highest attempt seen, `Aborted` when the abort came first.
        """
        assert not self.knows(request.request_id, request.attempt), "a repeated submit is answered by its entry"
        known = self._requests.get(request.request_id)
        aborted, _ = self._tombstones.get(request.request_id, (-1, 0.0))
        if aborted >= request.attempt:
            raise Aborted(f"request {request.request_id} attempt {request.attempt} was aborted before it arrived")
        if known is not None and known.attempt > request.attempt:
            raise StaleAttempt(
                f"request {request.request_id}: attempt {request.attempt} came after attempt {known.attempt}"
            )
        old = self._live.pop(request.request_id, None)
        outputs = {s.index: SequenceOutput(len(s.output_token_ids)) for s in request.sequences}
        new = WorkRequest(request.request_id, request.attempt, session_id, outputs, now_s)
        self._requests[request.request_id] = self._live[request.request_id] = new
        return new, old

    def record(self, emission: Emission, now_s: float) -> WorkRequest | None:
        """Keep an emission; returns its request, or None when nobody wants it (ended, aborted, an old attempt)."""
        work = self._live.get(emission.request_id)
        if work is None or work.attempt != emission.attempt:
            return None
        out = work.outputs.get(emission.sequence)
        if out is None or out.is_finished:
            return None
        out.token_ids += emission.token_ids
        if emission.logprobs is not None:
            out.logprobs = (out.logprobs or []) + emission.logprobs
        if emission.num_cached_tokens >= 0:
            out.num_cached_tokens = emission.num_cached_tokens
        work.last_output_s, work.state = now_s, "running"
        if emission.finish_reason is not None:
            out.last = emission
            self._end_if_finished(work, now_s)
        return work

    def abort(self, request_id: str, attempt: int, sequences: Iterable[int], now_s: float) -> WorkRequest | None:
        """End a request, or some sequences; returns it when the engine must be told.  Unknown: a tombstone."""
        only = set(sequences)
        work = self._requests.get(request_id)
        if work is None or work.attempt < attempt:
            if not only:
                highest = max(attempt, self._tombstones.get(request_id, (attempt, 0.0))[0])
                self._tombstones[request_id] = (highest, now_s)
            if work is None:
                return None
        if work.attempt > attempt or work.ended_s is not None:
            return None
        for index, out in work.outputs.items():
            if not out.is_finished and (not only or index in only):
                out.last = Emission(
                    request_id, work.attempt, index, out.num_output_tokens, [], finish_reason=FINISH_ABORT
                )
        self._end_if_finished(work, now_s)
        return work

    def attach(self, request_id: str, attempt: int, session_id: str) -> WorkRequest:
        """Give a request's tokens to another session; raises a typed error when it is unknown or another attempt."""
        work = self._requests.get(request_id)
        if work is None:
            raise InvalidInput(f"request {request_id} is not known to this worker", param="request_id")
        if work.attempt != attempt:
            raise StaleAttempt(f"request {request_id} is at attempt {work.attempt}, not {attempt}")
        work.session_id = session_id
        return work

    def replay(self, request_id: str, attempt: int, from_index: dict[int, int]) -> list[Emission]:
        """What each sequence has put out from these indexes on; nothing for unknown pairs."""
        work = self._requests.get(request_id)
        if work is None or work.attempt != attempt:
            return []
        again = []
        for sequence, index in from_index.items():
            out = work.outputs.get(sequence)
            if out is None:
                continue
            skip = max(0, index - out.first_index)
            emission = Emission(
                request_id,
                attempt,
                sequence,
                out.first_index + skip,
                out.token_ids[skip:],
                out.logprobs[skip:] if out.logprobs is not None else None,
                num_cached_tokens=out.num_cached_tokens,
            )
            if out.last is not None:
                emission.finish_reason, emission.stop_reason = out.last.finish_reason, out.last.stop_reason
                emission.error = out.last.error
            if emission.token_ids or out.is_finished:
                again.append(emission)
        return again

    def pause(self, work: WorkRequest, is_session_blocked: bool) -> bool | None:
        """Settle whether a request should be paused; returns the change for the engine, None when there is none."""
        wanted = is_session_blocked or work.is_paused_by_client
        if wanted == work.is_paused:
            return None
        work.is_paused = wanted
        return wanted

    def sweep(self, now_s: float) -> None:
        """Forget what ended, and tombstones, after `RETAIN_S`; of what ended, keep the newest `MAX_RETAINED`."""
        ended = [(w.ended_s, key) for key, w in self._requests.items() if w.ended_s is not None]
        excess = sorted(ended)[: max(0, len(ended) - MAX_RETAINED)]
        for key in {key for ended_s, key in ended if now_s - ended_s > RETAIN_S} | {key for _, key in excess}:
            del self._requests[key]
        for key in [k for k, (_, at_s) in self._tombstones.items() if now_s - at_s > RETAIN_S]:
            del self._tombstones[key]

    def note_states(self, states: Iterable[RequestState]) -> None:
        """Take the engine's word for where live requests are."""
        for state in states:
            work = self.get_live(state.request_id, state.attempt)
            if work is not None:
                work.state = state.state

    # --- views ---

    def knows(self, request_id: str, attempt: int) -> bool:
        """Whether this very attempt is live or retained."""
        work = self._requests.get(request_id)
        return work is not None and work.attempt == attempt

    def belongs(self, request_id: str, attempt: int, session_id: str) -> bool:
        return self.knows(request_id, attempt) and self._requests[request_id].session_id == session_id

    def live(self) -> list[WorkRequest]:
        return list(self._live.values())

    def get_live(self, request_id: str, attempt: int) -> WorkRequest | None:
        work = self._live.get(request_id)
        return work if work is not None and work.attempt == attempt else None

    @property
    def num_live(self) -> int:
        return len(self._live)

    @property
    def num_retained(self) -> int:
        return len(self._requests) - len(self._live)

    def live_keys(self) -> list[tuple[str, int]]:
        return [(w.request_id, w.attempt) for w in self._live.values()]

    def of_session(self, session_id: str) -> list[WorkRequest]:
        """Live requests of one session."""
        return [w for w in self._live.values() if w.session_id == session_id]

    def silent(self, session_id: str, now_s: float) -> tuple[SilentRequest, ...]:
        """Requests of a session that were silent for a second, and those that ended a moment ago."""
        out = []
        for work in self._requests.values():
            if work.session_id != session_id:
                continue
            silent_s = now_s - (work.last_output_s if work.ended_s is None else work.ended_s)
            if silent_s < SILENT_S or (work.ended_s is not None and silent_s > ENDED_REPORT_S):
                continue
            state = "ended" if work.ended_s is not None else "paused" if work.is_paused else work.state
            sent = {index: o.num_output_tokens for index, o in work.outputs.items()}
            out.append(SilentRequest(work.request_id, work.attempt, state, sum(sent.values()), sent))
        return tuple(out)

    def check_integrity(self) -> None:
        for request_id, work in self._live.items():
            assert self._requests[request_id] is work, f"live request {request_id} is not the known one"
            assert work.ended_s is None, f"live request {request_id} has ended"
            assert not all(o.is_finished for o in work.outputs.values()), f"live request {request_id} is finished"
        ended = sum(w.ended_s is not None for w in self._requests.values())
        assert ended == self.num_retained, "an ended request is live, or a running one is not"

    # --- inner ---

    def _end_if_finished(self, work: WorkRequest, now_s: float) -> None:
        if all(o.is_finished for o in work.outputs.values()):
            work.ended_s = now_s
            self._live.pop(work.request_id, None)
