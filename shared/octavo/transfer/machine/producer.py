"""`Producer`: a worker's outgoing transfers.  Pure: every verb gets the time and returns what is to be done.

The epoch of a transfer is unique within the incarnation, so a reader that finds another value in the transfer's word
after its copy knows that the pages may have been used for something else.  An ended transfer is fenced first: its epoch
changes, no read begins any more, and its holds go when the last local read has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from octavo.errors import InternalError
from octavo.transfer.machine.action import Action, Begin, Cancel, Free, Lookup, Send, SetEpoch
from octavo.transfer.machine.counter import Counters
from octavo.transfer.machine.ledger import Ledger, Tombstone
from octavo.transfer.machine.noun import Lease, Limits, Outgoing, ProducerState, Reason
from octavo.transfer.message import (
    OUTCOME_FAILED,
    OUTCOME_READY,
    ConsumerEnd,
    EndAck,
    Hello,
    Page,
    Probe,
    ProbeReply,
    ProducerEnd,
    Renew,
    Status,
    Terms,
    ToProducer,
)
from octavo.transfer.terms import incompatibilities

UNKNOWN = "unknown"
"""State in the answer to a hello of a transfer that was never opened here."""
GONE = ProducerState.EXPIRED.value
_UNSTARTED = (ProducerState.RESERVED, ProducerState.FILLING)


@dataclass(slots=True)
class _Parked:
    hello: Hello
    until_s: float


class Producer:
    """Owner of the outgoing transfers of one incarnation.  Not thread-safe: one thread drives it."""

    def __init__(self, terms: Terms, limits: Limits | None = None, first_epoch: int = 1) -> None:
        self.terms = terms
        self.limits = limits or Limits()
        self.ledger: Ledger[Outgoing] = Ledger(self.limits.tombstone_s)
        self.counters = Counters()
        self._epoch = first_epoch
        self._free_slots = list(range(self.limits.num_slots - 1, -1, -1))
        self._parked: dict[str, _Parked] = {}

    # --- the engine's side -------------------------------------------------------------------------------------------

    def reserve(self, transfer_id: str, owner: tuple[str, int], now_s: float) -> list[Action]:
        """Open a transfer; the caller keeps its holds until `Free`.  An open one is left as it is.

        `Cancel` and `Free` come back at once when the consumer is gone already, or no slot is left.
        """
        if self.ledger.get(transfer_id) is not None:
            return []
        stone = self.ledger.tombstone(transfer_id, now_s)
        if stone is not None or not self._free_slots:
            reason = Reason.NO_SPACE if stone is None else Reason.CANCELLED
            if stone is None:
                self.ledger.bury(transfer_id, now_s, self._failed(transfer_id, 0, reason))
            parked = self._parked.pop(transfer_id, None)
            out: list[Action] = [Cancel(transfer_id, reason), Free(transfer_id)]
            return out if parked is None else [*out, *self._hello(parked.hello, now_s)]
        slot = self._free_slots.pop()
        transfer = Outgoing(transfer_id, owner, now_s, epoch=self._next_epoch(), slot=slot)
        self.ledger.open(transfer)
        self.counters.num_transfers += 1
        out = [SetEpoch(slot, transfer.epoch)]
        parked = self._parked.pop(transfer_id, None)
        return out if parked is None else [*out, *self._hello(parked.hello, now_s)]

    def fill(self, transfer_id: str, pages: Sequence[Page], now_s: float) -> list[Action]:
        """Pages whose every token is computed; each once, in order.  Ignored for a transfer that has ended."""
        transfer = self.ledger.get(transfer_id)
        if transfer is None or transfer.state not in _UNSTARTED:
            return []
        num_known = len(transfer.wanted(self._block_size))
        transfer.state = ProducerState.FILLING
        transfer.pages += pages
        return [self._status(transfer, num_known)] if transfer.terms is not None else []

    def finish(self, transfer_id: str, num_tokens: int, payload: bytes, now_s: float) -> list[Action]:
        """All pages of `num_tokens` tokens are filled: the producer's terminal message, and the lease starts."""
        transfer = self.ledger.get(transfer_id)
        if transfer is None or transfer.state not in _UNSTARTED:
            return []
        transfer.state = ProducerState.READY
        transfer.lease = Lease.start(self.limits.lease_s, now_s)
        transfer.end = ProducerEnd(
            transfer_id,
            transfer.pull_id,
            self.terms.incarnation,
            OUTCOME_READY,
            num_tokens=num_tokens,
            payload=payload,
        )
        return self._answer(transfer) if transfer.terms is not None else []

    def fail(self, transfer_id: str, reason: Reason, now_s: float) -> list[Action]:
        """The engine cannot or must not go on with this transfer."""
        transfer = self.ledger.get(transfer_id)
        if transfer is None or transfer.state is ProducerState.FENCING:
            return []
        return self._end(transfer, ProducerState.FAILED, reason, now_s)

    # --- the reading side --------------------------------------------------------------------------------------------

    def begin_read(self, transfer_id: str, pull_id: int, epoch: int) -> bool:
        """May a local thread read these pages?  True adds a read, which `end_read` must end."""
        transfer = self.ledger.get(transfer_id)
        if transfer is None or not transfer.is_readable or (transfer.pull_id, transfer.epoch) != (pull_id, epoch):
            self.counters.num_refused_reads += 1
            return False
        transfer.num_reads += 1
        return True

    def end_read(self, transfer_id: str, now_s: float) -> list[Action]:
        transfer = self.ledger.get(transfer_id)
        if transfer is None or not transfer.num_reads:
            raise InternalError(f"transfer {transfer_id}: a read ended that did not begin")
        transfer.num_reads -= 1
        if transfer.state is not ProducerState.FENCING or not self._may_free(transfer):
            return []
        return self._close(transfer, now_s)

    # --- messages and time -------------------------------------------------------------------------------------------

    def receive(self, message: ToProducer, now_s: float) -> list[Action]:
        """Take a consumer's message; any of them may come late, twice or never."""
        match message:
            case Hello():
                return self._hello(message, now_s)
            case Renew():
                return self._renew(message, now_s)
            case ConsumerEnd():
                return self._consumer_end(message, now_s)
            case Probe(worker_id=peer, pull_id=pull_id, number=number):
                return [Send(peer, ProbeReply(self.terms.incarnation, pull_id, number))]

    def void(self, worker_id: str, incarnation: str, now_s: float) -> list[Action]:
        """Worker `worker_id` lives as `incarnation` (empty: not at all): what its other lives wanted ends."""
        out: list[Action] = []
        for transfer in self.ledger:
            is_old = transfer.peer == worker_id and transfer.peer_incarnation != incarnation
            if is_old and transfer.state is not ProducerState.FENCING:
                out += self._end(transfer, ProducerState.RELEASED, Reason.PEER_GONE, now_s)
        return out

    def tick(self, now_s: float) -> list[Action]:
        """Leases that are over, hellos that were parked too long, tombstones."""
        out: list[Action] = []
        for transfer in self.ledger:
            is_over = transfer.lease is not None and transfer.lease.is_over(now_s)
            if is_over and transfer.state is ProducerState.READY:
                self.counters.num_expired += 1
                out += self._end(transfer, ProducerState.EXPIRED, Reason.TIMEOUT, now_s)
        for transfer_id, parked in list(self._parked.items()):
            if parked.until_s <= now_s:
                del self._parked[transfer_id]
                self.ledger.bury(transfer_id, now_s)
                out.append(self._refusal(parked.hello, UNKNOWN))
        self.ledger.sweep(now_s)
        return out

    def check_integrity(self) -> None:
        """Raise `InternalError` unless slots, states and the ledger account for every transfer."""
        self.ledger.check_integrity()
        slots = [t.slot for t in self.ledger]
        if sorted(slots + self._free_slots) != list(range(self.limits.num_slots)):
            raise InternalError(f"epoch slots do not add up: {len(slots)} used, {len(self._free_slots)} free")
        for t in self.ledger:
            is_fencing = t.state is ProducerState.FENCING
            if is_fencing != (t.ending is not None) or (is_fencing and not t.num_reads):
                raise InternalError(f"transfer {t.transfer_id}: {t.state}, {t.num_reads} reads, ending {t.ending}")
            if (t.state is ProducerState.READY) != (t.lease is not None and not is_fencing):
                raise InternalError(f"transfer {t.transfer_id}: {t.state} and lease {t.lease} do not go together")

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _block_size(self) -> int:
        return self.terms.layout.block_size

    def _next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch

    def _failed(self, transfer_id: str, pull_id: int, reason: Reason) -> ProducerEnd:
        self.counters.count_failure(reason.value)
        return ProducerEnd(transfer_id, pull_id, self.terms.incarnation, OUTCOME_FAILED, reason.value)

    def _hello(self, hello: Hello, now_s: float) -> list[Action]:
        peer = hello.terms.worker_id
        out = self.void(peer, hello.terms.incarnation, now_s)
        transfer = self.ledger.get(hello.transfer_id)
        if transfer is None:
            return out + self._hello_unknown(hello, now_s)
        is_other = transfer.terms is not None and transfer.peer != peer
        if is_other or hello.pull_id < transfer.pull_id or transfer.state is ProducerState.FENCING:
            self.counters.num_late += 1
            return out
        reasons = incompatibilities(self.terms, hello.terms)
        is_new = transfer.terms is None
        transfer.peer, transfer.peer_incarnation, transfer.terms = peer, hello.terms.incarnation, hello.terms
        transfer.pull_id, transfer.have_tokens = hello.pull_id, hello.have_tokens
        if reasons:
            return out + self._end(transfer, ProducerState.FAILED, Reason.INCOMPATIBLE, now_s)
        if is_new:
            out.append(Begin(hello.transfer_id))
        if transfer.lease is not None:
            transfer.lease.renew(now_s)
        return [*out, self._status(transfer, 0), *self._answer(transfer)]

    def _hello_unknown(self, hello: Hello, now_s: float) -> list[Action]:
        peer = hello.terms.worker_id
        stone = self.ledger.tombstone(hello.transfer_id, now_s)
        if stone is not None:
            self.counters.num_late += 1
            return self._answer_late(peer, stone, hello.transfer_id, hello.pull_id)
        if hello.hashes and hello.transfer_id not in self._parked:
            self._parked[hello.transfer_id] = _Parked(hello, now_s + self.limits.park_s)
            return [Lookup(hello)]
        known = self._parked.get(hello.transfer_id)
        if known is not None:
            is_same_life = hello.terms.incarnation == known.hello.terms.incarnation
            if not is_same_life or hello.pull_id >= known.hello.pull_id:
                known.hello = hello
            return []
        if len(self._parked) >= self.limits.max_parked:
            return [self._refusal(hello, UNKNOWN)]
        self.counters.num_parked += 1
        self._parked[hello.transfer_id] = _Parked(hello, now_s + self.limits.park_s)
        return []

    def _renew(self, renew: Renew, now_s: float) -> list[Action]:
        transfer = self.ledger.get(renew.transfer_id)
        if transfer is None:
            stone = self.ledger.tombstone(renew.transfer_id, now_s)
            return [] if stone is None else self._answer_late(renew.worker_id, stone, renew.transfer_id, renew.pull_id)
        is_theirs = (transfer.peer, transfer.peer_incarnation) == (renew.worker_id, renew.incarnation)
        if not is_theirs or renew.pull_id != transfer.pull_id or transfer.state is ProducerState.FENCING:
            self.counters.num_late += 1
            return []
        if transfer.lease is not None:
            transfer.lease.renew(now_s)
        return [self._status(transfer, renew.num_pages), *self._answer(transfer)]

    def _refusal(self, hello: Hello, state: str) -> Send:
        """No terminal message: only a transfer that was opened here has one."""
        self.counters.count_failure(state)
        return Send(hello.terms.worker_id, Status(hello.transfer_id, hello.pull_id, self.terms, state, 0, 0))

    def _answer_late(self, peer: str, stone: Tombstone, transfer_id: str, pull_id: int) -> list[Action]:
        """A pull of a transfer that has ended gets its terminal message again, and hears that the pages are gone."""
        gone = Status(transfer_id, pull_id, self.terms, UNKNOWN if stone.end is None else GONE, 0, 0)
        if stone.end is None or stone.end.outcome == OUTCOME_READY:
            return [Send(peer, gone)]
        return [Send(peer, msgspec.structs.replace(stone.end, pull_id=pull_id))]

    def _consumer_end(self, message: ConsumerEnd, now_s: float) -> list[Action]:
        ack = Send(message.worker_id, EndAck(message.transfer_id, self.terms.incarnation))
        transfer = self.ledger.get(message.transfer_id)
        self._parked.pop(message.transfer_id, None)
        if transfer is None:
            if self.ledger.tombstone(message.transfer_id, now_s) is None:
                self.ledger.bury(message.transfer_id, now_s)
            return [ack]
        if transfer.terms is not None and transfer.peer != message.worker_id:
            self.counters.num_late += 1
            return [ack]
        if transfer.state is ProducerState.FENCING:
            return [ack]
        transfer.peer = message.worker_id
        return [*self._end(transfer, ProducerState.RELEASED, Reason.CANCELLED, now_s), ack]

    def _end(self, transfer: Outgoing, ending: ProducerState, reason: Reason, now_s: float) -> list[Action]:
        """Fence a transfer: new epoch, terminal message unless it was made before, and the holds when no read runs."""
        out: list[Action] = []
        if transfer.state in _UNSTARTED and ending is not ProducerState.FAILED:
            out.append(Cancel(transfer.transfer_id, reason))
        if transfer.end is None:
            transfer.end = self._failed(transfer.transfer_id, transfer.pull_id, reason)
            if transfer.peer:
                out.append(Send(transfer.peer, transfer.end))
        elif ending in (ProducerState.FAILED, ProducerState.EXPIRED) and transfer.peer:
            out.append(self._status(transfer, 0, ending))
        out.append(SetEpoch(transfer.slot, self._next_epoch()))
        transfer.ending, transfer.state, transfer.lease = ending, ProducerState.FENCING, None
        return out + (self._close(transfer, now_s) if self._may_free(transfer) else [])

    def _may_free(self, transfer: Outgoing) -> bool:
        return not transfer.num_reads

    def _close(self, transfer: Outgoing, now_s: float) -> list[Action]:
        if transfer.ending is None:
            raise InternalError(f"transfer {transfer.transfer_id}: closed before it ended")
        transfer.state = transfer.ending
        self.counters.num_released += transfer.ending is ProducerState.RELEASED
        self._free_slots.append(transfer.slot)
        self.ledger.close(transfer.transfer_id, now_s, transfer.end)
        return [Free(transfer.transfer_id)]

    def _status(self, transfer: Outgoing, first: int, state: ProducerState | None = None) -> Send:
        pages = [] if state is not None else transfer.wanted(self._block_size)[first:]
        name = (state or transfer.state).value
        ids = (transfer.transfer_id, transfer.pull_id)
        return Send(transfer.peer, Status(*ids, self.terms, name, transfer.epoch, transfer.slot, first, pages))

    def _answer(self, transfer: Outgoing) -> list[Action]:
        """The terminal message, for the consumer's current pull, if it was made."""
        if transfer.end is None:
            return []
        num_pages = len(transfer.wanted(self._block_size))
        end = msgspec.structs.replace(transfer.end, pull_id=transfer.pull_id, num_pages=num_pages)
        return [Send(transfer.peer, end)]
