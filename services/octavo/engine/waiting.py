"""`WaitingQueue`: the order in which waiting sequences are admitted.

A policy gives each sequence a key; lower keys first.  Keys do not change while a sequence waits: aging
makes all of them better at the same rate, so the order at one time is the order at all times.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from octavo.engine.sequence import Sequence, Status

AGING_STEPS = 256
"""Steps of waiting that are worth one level of priority."""

Key = tuple[int, int, int]


class Policy:
    """An order of waiting sequences, and who may be displaced for whom."""

    def key(self, sequence: Sequence) -> Key:
        """Lower is admitted first."""
        raise NotImplementedError

    def level(self, sequence: Sequence) -> int:
        """Coarse importance of a running sequence; higher is preempted first."""
        raise NotImplementedError

    def has_precedence(self, sequence: Sequence, other: Sequence) -> bool:
        """Whether the running `other` may be preempted so that `sequence` can be admitted."""
        raise NotImplementedError


class Fcfs(Policy):
    """Those that began elsewhere or before (resumed, preempted) first, then in order of arrival."""

    def key(self, sequence: Sequence) -> Key:
        return (0 if _has_begun(sequence) else 1, sequence.live.arrival, sequence.index)

    def level(self, sequence: Sequence) -> int:
        return 0

    def has_precedence(self, sequence: Sequence, other: Sequence) -> bool:
        return False


class Priority(Policy):
    """Lower `priority` first, one level better for each `AGING_STEPS` of age; having begun is worth one level."""

    def key(self, sequence: Sequence) -> Key:
        credit = AGING_STEPS if _has_begun(sequence) else 0
        return (self._age(sequence) - credit, sequence.live.arrival, sequence.index)

    def level(self, sequence: Sequence) -> int:
        return self._age(sequence) // AGING_STEPS

    def has_precedence(self, sequence: Sequence, other: Sequence) -> bool:
        # The aged order counts too: what was admitted for its age must not be displaced by what is merely important.
        return sequence.priority < other.priority and self._age(sequence) < self._age(other)

    def _age(self, sequence: Sequence) -> int:
        return sequence.priority * AGING_STEPS + sequence.live.arrival_step


POLICIES: dict[str, type[Policy]] = {"fcfs": Fcfs, "priority": Priority}


class WaitingQueue:
    """Waiting sequences, sorted by the policy's key."""

    def __init__(self, policy: Policy) -> None:
        self._key = policy.key
        self._entries: list[tuple[Key, Sequence]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Sequence]:
        """The sequences in order; the queue may change meanwhile."""
        return iter([sequence for _, sequence in self._entries])

    def __contains__(self, sequence: Sequence) -> bool:
        at = self._find(sequence)
        return at < len(self._entries) and self._entries[at][1] is sequence

    def push(self, sequence: Sequence) -> None:
        insort(self._entries, (self._key(sequence), sequence))

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out; its status must be what it was when pushed."""
        at = self._find(sequence)
        if at >= len(self._entries) or self._entries[at][1] is not sequence:
            raise KeyError(f"sequence {sequence.index} of {sequence.live.request.request_id} is not waiting")
        del self._entries[at]

    def _find(self, sequence: Sequence) -> int:
        return bisect_left(self._entries, (self._key(sequence),))


def _has_begun(sequence: Sequence) -> bool:
    return sequence.is_resumed or sequence.status is Status.PREEMPTED
