"""`Ledger`: what is in flight where, known from the moment of choice.

An entry is made when a worker is chosen, long before the worker reports the request; reports then confirm it, and an
entry that was confirmed once ends when a report lacks it.  Requests that other routers placed show in reports only.
Pure: times are arguments (monotonic seconds).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

GRACE_S = 2.0
"""Time from choice to the first report that must name a request."""

Key = tuple[str, str, int]
"""(gateway incarnation, request id, attempt)."""


@dataclass
class Entry:
    worker_id: str
    at_s: float
    num_tokens: int
    is_confirmed: bool = False


class Ledger:
    """Verbs: `enter`, `reconcile`, `drop_worker`."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[Key, Entry]] = {}
        self._worker_of: dict[tuple[str, str], tuple[Key, str]] = {}
        self._foreign: dict[str, int] = {}

    def enter(self, key: Key, worker_id: str, num_tokens: int, now_s: float) -> None:
        """A choice was made; it takes the place of the request's earlier attempts and choices."""
        request = key[:2]
        if request in self._worker_of:
            old_key, old_worker = self._worker_of[request]
            self._remove(old_worker, old_key)
        self._entries.setdefault(worker_id, {})[key] = Entry(worker_id, now_s, num_tokens)
        self._worker_of[request] = (key, worker_id)

    def reconcile(self, worker_id: str, live: Iterable[tuple[str, int]], now_s: float) -> None:
        """A worker's report names all its live (request id, attempt) pairs."""
        pairs = set(live)
        own: set[tuple[str, int]] = set()
        for key, entry in list(self._entries.get(worker_id, {}).items()):
            pair = (key[1], key[2])
            if pair in pairs:
                entry.is_confirmed = True
                own.add(pair)
            elif entry.is_confirmed or now_s - entry.at_s > GRACE_S:
                self._remove(worker_id, key)
        self._foreign[worker_id] = len(pairs - own)

    def drop_worker(self, worker_id: str) -> None:
        """A worker is gone, and what it ran with it."""
        for key in list(self._entries.get(worker_id, {})):
            self._remove(worker_id, key)
        self._entries.pop(worker_id, None)
        self._foreign.pop(worker_id, None)

    def num_in_flight(self, worker_id: str) -> int:
        return len(self._entries.get(worker_id, ())) + self._foreign.get(worker_id, 0)

    def num_tokens(self, worker_id: str) -> int:
        """Prompt tokens of this router's choices that no report has confirmed yet."""
        return sum(e.num_tokens for e in self._entries.get(worker_id, {}).values() if not e.is_confirmed)

    def check_integrity(self) -> None:
        entries = {key: worker for worker, by_key in self._entries.items() for key in by_key}
        assert dict(self._worker_of.values()) == entries, "the ledger's two views differ"
        assert len(self._worker_of) == len(entries), "a request is in flight twice"

    def _remove(self, worker_id: str, key: Key) -> None:
        self._entries[worker_id].pop(key, None)
        if self._worker_of.get(key[:2], (None, ""))[0] == key:
            del self._worker_of[key[:2]]
