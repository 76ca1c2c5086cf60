"""`Fleet`: the workers as this router sees them, and the filters that a placement passes.

Membership comes from the registry, load from reports, what is in flight from the ledger.  Pure: times are arguments.
"""

from __future__ import annotations

from octavo.errors import InvalidInput, ModelNotFound, TooLong, Unavailable
from octavo.kv.record import PROTOCOL_MIN_VERSION, PROTOCOL_VERSION, WorkerRecord
from octavo.registry.memory import Member, MemoryRegistry
from octavo.router.ledger import Ledger
from octavo.router.policy import Candidate
from octavo.rpc.placement import FleetMember, PlaceRequest
from octavo.wire.message import LoadReport

RETRY_AFTER_S = 1.0


def serves(record: WorkerRecord, model: str) -> bool:
    return model == record.model or model in record.served_names


def is_compatible(record: WorkerRecord) -> bool:
    """Whether a protocol version exists that this release and the worker both speak."""
    return record.protocol_min <= PROTOCOL_VERSION and record.protocol_max >= PROTOCOL_MIN_VERSION


def holds(record: WorkerRecord, request: PlaceRequest) -> bool:
    """Whether the worker's pool can hold the prompt and the output asked for."""
    return request.num_prompt_tokens + max(1, request.max_tokens) <= record.max_sequence_tokens


class Fleet:
    """Verbs: `join`, `heartbeat`, `leave`, `report`, `candidates`, `overdue`."""

    def __init__(self) -> None:
        self.registry = MemoryRegistry()
        self.ledger = Ledger()
        self._loads: dict[str, LoadReport] = {}
        self._known_models: set[str] = set()

    def join(self, record: WorkerRecord, now_s: float) -> None:
        """A worker registered; another incarnation of it is gone with all it ran."""
        if self.registry.register(record, now_s) is not None:
            self._forget(record.worker_id)
        self._known_models.update((record.model, *record.served_names))

    def heartbeat(self, worker_id: str, incarnation: str, is_ready: bool, now_s: float) -> bool:
        """Returns whether the worker must register again."""
        return self.registry.heartbeat(worker_id, incarnation, is_ready, now_s)

    def leave(self, worker_id: str, incarnation: str) -> None:
        if self.registry.deregister(worker_id, incarnation) is not None:
            self._forget(worker_id)

    def report(self, report: LoadReport, now_s: float) -> bool:
        """Take a load report; False when it is of no member, or older than the last."""
        member = self.registry.get(report.worker_id)
        last = self._loads.get(report.worker_id)
        if member is None or member.record.incarnation != report.incarnation:
            return False
        if last is not None and last.incarnation == report.incarnation and last.sequence >= report.sequence:
            return False
        self._loads[report.worker_id] = report
        # Reports come at once when readiness changes; waiting for the heartbeat would place on a stopped engine.
        self.registry.note_ready(report.worker_id, report.incarnation, report.is_ready)
        self.ledger.reconcile(report.worker_id, report.live, now_s)
        return True

    def candidates(self, request: PlaceRequest) -> list[Candidate]:
        """The workers that may take `request`; raises a typed error that says why there is none."""
        members = self.registry.members()
        able = [m for m in members if serves(m.record, request.model)]
        if not able:
            raise self._no_model(request.model, members)
        able = [m for m in able if request.task in m.record.tasks]
        if not able:
            raise InvalidInput(f"task: got {request.task!r}; no worker of {request.model} offers it", param="task")
        if not any(holds(m.record, request) for m in able):
            raise self._too_long(request, able)
        able = [m for m in able if holds(m.record, request) and is_compatible(m.record)]
        able = [m for m in able if not request.numerics or m.record.numerics == request.numerics]
        able = [m for m in able if m.is_ready and m.worker_id not in request.exclude]
        if not able:
            raise Unavailable(f"no worker of {request.model} is ready for this request", retry_after_s=RETRY_AFTER_S)
        return [self._candidate(m) for m in able]

    def overdue(self, limit_s: float, now_s: float) -> list[Member]:
        """Members whose heartbeat is older than `limit_s`: to be probed."""
        return [m for m in self.registry.members() if m.age_s(now_s) > limit_s]

    # --- views ---

    def members(self, now_s: float) -> tuple[FleetMember, ...]:
        out = []
        for member in self.registry.members():
            c = self._candidate(member)
            out.append(
                FleetMember(
                    record=member.record,
                    is_ready=member.is_ready,
                    heartbeat_age_s=member.age_s(now_s),
                    num_in_flight=c.num_in_flight,
                    num_running=c.num_running,
                    num_waiting=c.num_waiting,
                    num_free_blocks=c.num_free_blocks,
                )
            )
        return tuple(out)

    def load_addresses(self) -> set[str]:
        return {m.record.load_address for m in self.registry.members() if m.record.load_address}

    def check_integrity(self) -> None:
        self.registry.check_integrity()
        self.ledger.check_integrity()
        for worker_id in self._loads:
            assert self.registry.get(worker_id) is not None, f"load of {worker_id}, which is no member"

    # --- inner ---

    def _candidate(self, member: Member) -> Candidate:
        load = self._loads.get(member.worker_id)
        stats = load.stats if load is not None else None
        return Candidate(
            member.record,
            self.ledger.num_in_flight(member.worker_id),
            stats.num_running if stats else 0,
            stats.num_waiting if stats else 0,
            stats.num_free_blocks if stats else member.record.num_blocks,
            self.ledger.num_tokens(member.worker_id),
        )

    def _forget(self, worker_id: str) -> None:
        self._loads.pop(worker_id, None)
        self.ledger.drop_worker(worker_id)

    def _no_model(self, model: str, members: list[Member]) -> ModelNotFound | Unavailable:
        if not members or model in self._known_models:
            return Unavailable(f"no worker of {model} is registered", retry_after_s=RETRY_AFTER_S)
        names = sorted({name for m in members for name in m.record.served_names})
        return ModelNotFound(f"model: got {model!r}; served are {', '.join(names)}", param="model")

    def _too_long(self, request: PlaceRequest, able: list[Member]) -> TooLong:
        longest = max(m.record.max_sequence_tokens for m in able)
        if request.num_prompt_tokens >= longest:
            return TooLong(
                f"prompt: got {request.num_prompt_tokens} tokens; the longest sequence that a worker of "
                f"{request.model} holds is {longest} tokens, output included",
                param="prompt",
            )
        return TooLong(
            f"max_tokens: got {request.max_tokens} after a prompt of {request.num_prompt_tokens} tokens; the longest "
            f"sequence that a worker of {request.model} holds is {longest} tokens, so at most "
            f"{longest - request.num_prompt_tokens}",
            param="max_tokens",
        )
