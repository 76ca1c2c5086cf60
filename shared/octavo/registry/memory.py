"""The memory registry: each router keeps what workers tell it, and nothing is replicated.

A worker sends its record and a heartbeat every second to every router; a router that lost its memory asks for the
record again, so a fresh one knows the fleet after one period.  Pure: times are arguments (monotonic seconds).
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.kv.record import WorkerRecord

HEARTBEAT_PERIOD_S = 1.0


@dataclass
class Member:
    """One registered worker."""

    record: WorkerRecord
    is_ready: bool
    heard_s: float

    @property
    def worker_id(self) -> str:
        return self.record.worker_id

    def age_s(self, now_s: float) -> float:
        return max(0.0, now_s - self.heard_s)


class MemoryRegistry:
    """Verbs: `register`, `heartbeat`, `note_ready`, `deregister`, `touch`."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}

    def register(self, record: WorkerRecord, now_s: float) -> Member | None:
        """Add or replace a worker; returns the member of another incarnation that it replaced."""
        old = self._members.get(record.worker_id)
        self._members[record.worker_id] = Member(record, True, now_s)
        return old if old is not None and old.record.incarnation != record.incarnation else None

    def heartbeat(self, worker_id: str, incarnation: str, is_ready: bool, now_s: float) -> bool:
        """Note a heartbeat; returns whether the record is missing (unknown worker or incarnation)."""
        member = self._members.get(worker_id)
        if member is None or member.record.incarnation != incarnation:
            return True
        member.is_ready, member.heard_s = is_ready, now_s
        return False

    def note_ready(self, worker_id: str, incarnation: str, is_ready: bool) -> None:
        """Readiness that came without a heartbeat: it says nothing of the age of the last one."""
        member = self._members.get(worker_id)
        if member is not None and member.record.incarnation == incarnation:
            member.is_ready = is_ready

    def deregister(self, worker_id: str, incarnation: str) -> Member | None:
        """Remove a worker, unless another incarnation has taken its place; returns what was removed."""
        member = self._members.get(worker_id)
        if member is None or member.record.incarnation != incarnation:
            return None
        return self._members.pop(worker_id)

    def touch(self, worker_id: str, incarnation: str, is_ready: bool, now_s: float) -> None:
        """A probe answered in place of a heartbeat."""
        self.heartbeat(worker_id, incarnation, is_ready, now_s)

    def get(self, worker_id: str) -> Member | None:
        return self._members.get(worker_id)

    def members(self) -> list[Member]:
        return list(self._members.values())

    def check_integrity(self) -> None:
        for worker_id, member in self._members.items():
            assert member.record.worker_id == worker_id, f"{member.record.worker_id} is filed under {worker_id}"
