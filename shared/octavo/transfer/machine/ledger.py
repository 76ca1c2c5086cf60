"""`Ledger`: the open transfers of one side, and the ids of those that ended a moment ago."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

from octavo.errors import InternalError
from octavo.transfer.machine.noun import Transfer
from octavo.transfer.message import ProducerEnd

T = TypeVar("T", bound=Transfer)


class Tombstone:
    """A transfer that ended: until when it is remembered, and this side's terminal message if it has one."""

    __slots__ = ("end", "until_s")

    def __init__(self, until_s: float, end: ProducerEnd | None) -> None:
        self.until_s, self.end = until_s, end


class Ledger(Generic[T]):
    """Owner of the open transfers.  Each is closed exactly once; its tombstone keeps late messages from reviving it."""

    def __init__(self, tombstone_s: float) -> None:
        self._tombstone_s = tombstone_s
        self._open: dict[str, T] = {}
        self._tombstones: OrderedDict[str, Tombstone] = OrderedDict()
        self.num_opened = 0
        self.num_closed = 0

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._open.values()))

    def open(self, transfer: T) -> T:
        """Enter a transfer; raises `InternalError` when its id is open."""
        if transfer.transfer_id in self._open:
            raise InternalError(f"transfer {transfer.transfer_id} is open already")
        self._open[transfer.transfer_id] = transfer
        self.num_opened += 1
        return transfer

    def get(self, transfer_id: str) -> T | None:
        return self._open.get(transfer_id)

    def close(self, transfer_id: str, now_s: float, end: ProducerEnd | None = None) -> None:
        """End a transfer; its id is remembered."""
        if self._open.pop(transfer_id, None) is None:
            raise InternalError(f"transfer {transfer_id} is not open: it cannot be closed")
        self.num_closed += 1
        self.bury(transfer_id, now_s, end)

    def bury(self, transfer_id: str, now_s: float, end: ProducerEnd | None = None) -> None:
        """Leave a tombstone, also for an id that was never open."""
        self._tombstones[transfer_id] = Tombstone(now_s + self._tombstone_s, end)
        self._tombstones.move_to_end(transfer_id)

    def tombstone(self, transfer_id: str, now_s: float) -> Tombstone | None:
        """What is left of a transfer that ended; asking keeps it for longer, as whoever asks may ask again."""
        stone = self._tombstones.get(transfer_id)
        if stone is not None:
            stone.until_s = now_s + self._tombstone_s
            self._tombstones.move_to_end(transfer_id)
        return stone

    def sweep(self, now_s: float) -> None:
        """Forget old tombstones."""
        while self._tombstones:
            transfer_id, stone = next(iter(self._tombstones.items()))
            if stone.until_s > now_s:
                return
            del self._tombstones[transfer_id]

    def ages_s(self, now_s: float) -> list[tuple[str, str, float]]:
        """(transfer id, peer, age) of every open transfer, oldest first."""
        return sorted(((t.transfer_id, t.peer, now_s - t.opened_s) for t in self), key=lambda row: -row[2])

    def check_integrity(self) -> None:
        """Raise `InternalError` when what was opened is neither open nor closed."""
        if self.num_opened != self.num_closed + len(self._open):
            raise InternalError(f"{self.num_opened} opened, {self.num_closed} closed, {len(self._open)} open")
        wrong = [key for key, t in self._open.items() if t.transfer_id != key]
        if wrong:
            raise InternalError(f"transfers under another's id: {wrong[:8]}")
