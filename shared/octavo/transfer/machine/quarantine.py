"""`Quarantine`: senders of bad pages, left out by this consumer for a while."""

from __future__ import annotations


class Quarantine:
    """A sender with `limit` bad pages is out for `period_s`; its count starts again afterwards.

    Keys are (worker id, incarnation): a restarted worker starts clean.
    """

    def __init__(self, limit: int, period_s: float) -> None:
        self._limit, self._period_s = limit, period_s
        self._num_bad: dict[tuple[str, str], int] = {}
        self._until_s: dict[tuple[str, str], float] = {}

    def add(self, sender: tuple[str, str], now_s: float) -> bool:
        """Count a bad page; True when it puts the sender out."""
        count = self._num_bad.get(sender, 0) + 1
        if count < self._limit:
            self._num_bad[sender] = count
            return False
        self._num_bad.pop(sender, None)
        self._until_s[sender] = now_s + self._period_s
        return True

    def is_out(self, sender: tuple[str, str], now_s: float) -> bool:
        return self._until_s.get(sender, now_s) > now_s

    def sweep(self, now_s: float) -> None:
        """Let senders in again whose time is over."""
        for sender in [s for s, until_s in self._until_s.items() if until_s <= now_s]:
            del self._until_s[sender]

    @property
    def senders(self) -> list[tuple[str, str]]:
        return list(self._until_s)
