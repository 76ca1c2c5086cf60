"""`RemoteLegs`: requests of an engine that wait for pages of another worker (decode legs), by transfer.  Pure."""

from __future__ import annotations

from octavo.engine.reservation import Reservation, Reservations
from octavo.engine.sequence import LiveRequest, Status
from octavo.errors import InvalidInput, Problem, show
from octavo.kv.hash import block_hashes, extend_chain
from octavo.request import SIDE_CONSUME, Request


class RemoteLegs:
    """Which request waits for which transfer.

    A request may end while its pages are still being written: its reservation then stays until the transfer says that
    no copy runs any more.
    """

    def __init__(self, reservations: Reservations, block_size: int) -> None:
        self.reservations = reservations
        self._block_size = block_size
        self._live: dict[str, LiveRequest | None] = {}

    def __len__(self) -> int:
        return len(self._live)

    def check(self, request: Request) -> None:
        """Raise `InvalidInput` when the request's transfer is one that is known."""
        if request.transfer is not None and request.transfer.transfer_id in self._live:
            allowed = "must be new: the gateway mints one for each placement"
            raise InvalidInput.of([Problem("transfer.transfer_id", show(request.transfer.transfer_id), allowed)])

    def add(self, live: LiveRequest) -> bool:
        """Let a decode leg wait for its pages; False for any other request, and for one that has begun elsewhere."""
        leg, request = live.request.transfer, live.request
        if leg is None or leg.side != SIDE_CONSUME or any(s.is_resumed for s in live.sequences):
            return False
        first = live.sequences[0]
        extend_chain(first.chain, live.seed, request.prompt_token_ids)
        hashes = block_hashes(first.chain, self._block_size)
        num_tokens = len(request.prompt_token_ids)
        reservation = Reservation(leg.transfer_id, num_tokens, hashes, len(live.sequences))
        self.reservations.request(reservation)
        self._live[leg.transfer_id] = live
        for sequence in live.sequences:
            sequence.status = Status.WAITING_KV
        return True

    def end(
        self, transfer_id: str, num_tokens: int, is_complete: bool
    ) -> tuple[LiveRequest | None, list[list[int]], int]:
        """The request (None when it has ended), the tables that its sequence takes over (none unless complete), and how
        many of their blocks were found here."""
        live = self._live.pop(transfer_id)
        if live is None or not is_complete:
            self.reservations.give_up(transfer_id, num_tokens)
            return live, [], 0
        reservation = self.reservations.commit(transfer_id, num_tokens)
        return live, reservation.tables, reservation.num_shared

    def forget(self, live: LiveRequest) -> None:
        """The request has ended.  Blocks that are not granted yet need no word from the transfer."""
        leg = live.request.transfer
        if leg is None or self._live.get(leg.transfer_id) is not live:
            return
        self._live[leg.transfer_id] = None
        if self.reservations.withdraw(leg.transfer_id):
            del self._live[leg.transfer_id]
