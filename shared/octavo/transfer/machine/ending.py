"""`Endings`: the consumer's terminal messages, each made once and sent until its producer acknowledges it."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.errors import InternalError
from octavo.transfer.machine.action import Action, Send
from octavo.transfer.machine.noun import Limits, Source
from octavo.transfer.message import ConsumerEnd


@dataclass(slots=True)
class _Ending:
    worker_id: str
    message: ConsumerEnd
    next_s: float
    num_left: int


class Endings:
    """By (transfer, incarnation of the producer).  A producer that never answers is left to its lease."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._unacked: dict[tuple[str, str], _Ending] = {}

    def __len__(self) -> int:
        return len(self._unacked)

    def send(self, source: Source, message: ConsumerEnd, now_s: float) -> list[Action]:
        """Make the terminal message of a pair; a second one is a fault of ours."""
        key = (message.transfer_id, source.incarnation)
        if key in self._unacked:
            raise InternalError(f"transfer {message.transfer_id} ended twice")
        num_left = int(self._limits.end_limit_s / self._limits.end_s)
        self._unacked[key] = _Ending(source.worker_id, message, now_s + self._limits.end_s, num_left)
        return [Send(source.worker_id, message)]

    def acked(self, transfer_id: str, incarnation: str) -> None:
        self._unacked.pop((transfer_id, incarnation), None)

    def void(self, worker_id: str, incarnation: str) -> None:
        """Worker `worker_id` lives as `incarnation`: nothing waits for its other lives."""
        for key, ending in list(self._unacked.items()):
            if ending.worker_id == worker_id and key[1] != incarnation:
                del self._unacked[key]

    def tick(self, now_s: float) -> list[Action]:
        out: list[Action] = []
        for key, ending in list(self._unacked.items()):
            if not ending.num_left:
                del self._unacked[key]
            elif ending.next_s <= now_s:
                ending.next_s = now_s + self._limits.end_s
                ending.num_left -= 1
                out.append(Send(ending.worker_id, ending.message))
        return out
