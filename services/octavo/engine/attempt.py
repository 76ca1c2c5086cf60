"""`AttemptFence`: which (request, attempt) pairs an engine takes.

A request may be tried again elsewhere or here, each time with a higher attempt.  The fence makes a submit idempotent,
refuses attempts below the highest seen, and remembers aborts that came before their submit.  Entries of requests that
are not live stay for `RETENTION_S` of the caller's time.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum

from octavo.errors import StaleAttempt

RETENTION_S = 60.0
MAX_RETAINED = 65_536


class Verdict(Enum):
    """What to do with a submit: take it, ignore the repetition, or answer that it was aborted before it came."""

    NEW = "new"
    REPEATED = "repeated"
    ABORTED = "aborted"


class AttemptFence:
    """Highest attempt seen and aborted, by request id."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._seen: dict[str, int] = {}
        self._aborted: dict[str, int] = {}
        self._until_s: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen.keys() | self._aborted.keys())

    def judge(self, request_id: str, attempt: int) -> Verdict:
        """The verdict on a submit, without recording it; raises `StaleAttempt` below the highest attempt seen."""
        seen = self._seen.get(request_id, -1)
        if attempt < seen:
            raise StaleAttempt(f"attempt of {request_id}: got {attempt}; must be at least {seen}", param="attempt")
        if attempt == seen:
            return Verdict.REPEATED
        return Verdict.ABORTED if attempt <= self._aborted.get(request_id, -1) else Verdict.NEW

    def record(self, request_id: str, attempt: int) -> None:
        """The attempt is live (or was answered) from now on; it does not expire before `end`."""
        self._seen[request_id] = attempt
        self._until_s.pop(request_id, None)

    def bury(self, request_id: str, attempt: int) -> None:
        """Leave a tombstone: a submit up to `attempt` that comes later was aborted before it came."""
        self._aborted[request_id] = max(attempt, self._aborted.get(request_id, -1))

    def end(self, request_id: str) -> None:
        """The request is not live any more: keep its entry for `RETENTION_S` from now."""
        self._until_s.pop(request_id, None)
        self._until_s[request_id] = self._now_s + RETENTION_S
        while len(self._until_s) > MAX_RETAINED:
            self._forget(next(iter(self._until_s)))

    def expire(self, now_s: float) -> None:
        """Move the time forward and drop what has been kept long enough."""
        self._now_s = max(now_s, self._now_s)
        while self._until_s:
            request_id, until_s = next(iter(self._until_s.items()))
            if until_s > self._now_s:
                break
            self._forget(request_id)

    def _forget(self, request_id: str) -> None:
        self._until_s.pop(request_id, None)
        self._seen.pop(request_id, None)
        self._aborted.pop(request_id, None)
