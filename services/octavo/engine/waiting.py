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
        has_begun = sequence.is_resumed or sequence.status is Status.PREEMPTED
        return (0 if has_begun else 1, sequence.live.arrival, sequence.index)

    def level(self, sequence: Sequence) -> int:
        return 0

    def has_precedence(self, sequence: Sequence, other: Sequence) -> bool:
        return False


class Priority(Policy):
    """Lower `priority` first, one level better for each `AGING_STEPS` of age; having begun elsewhere is worth one.

    One number orders the queue, and decides who is displaced.  Were they to differ, two sequences could take each
    other's place for ever: the one that is displaced must also be behind in the queue.
    """

    def key(self, sequence: Sequence) -> Key:
        return (self._rank(sequence), sequence.live.arrival, sequence.index)

    def level(self, sequence: Sequence) -> int:
        return self._rank(sequence) // AGING_STEPS

    def has_precedence(self, sequence: Sequence, other: Sequence) -> bool:
        return sequence.priority < other.priority and self._rank(sequence) < self._rank(other)

    def _rank(self, sequence: Sequence) -> int:
        return (sequence.priority - sequence.is_resumed) * AGING_STEPS + sequence.live.arrival_step


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
