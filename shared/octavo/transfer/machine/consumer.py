"""`Consumer`: a worker's incoming transfers.  Pure: every verb gets the time and returns what is to be done.

A transfer goes through its sources in order; each try is a pull with an id of its own, and what belongs to another pull
is dropped and counted.  Bytes count only when, after the copy, the digests over the destination are those announced and
the epoch is still the pull's.  A pull that fails is quiesced (no copy of it runs any more) before the next one starts
or the transfer's holds go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from octavo.errors import InternalError
from octavo.transfer.machine.action import Action, Commit, GiveUp, Read, Send, StopReads
from octavo.transfer.machine.counter import Counters
from octavo.transfer.machine.ending import Endings
from octavo.transfer.machine.ledger import Ledger
from octavo.transfer.machine.noun import UNIT_TOKENS, ConsumerState, Incoming, Limits, Pull, ReadOrder, Reason, Source
from octavo.transfer.machine.quarantine import Quarantine
from octavo.transfer.message import (
    OUTCOME_ACKED,
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
    ToConsumer,
)
from octavo.transfer.terms import incompatibilities

_LIVE = (ConsumerState.HELLO, ConsumerState.PULLING, ConsumerState.VERIFY)


class Consumer:
    """Owner of the incoming transfers of one incarnation.  Not thread-safe: one thread drives it."""

    def __init__(self, terms: Terms, limits: Limits | None = None, first_pull_id: int = 1) -> None:
        self.terms = terms
        self.limits = limits or Limits()
        self.ledger: Ledger[Incoming] = Ledger(self.limits.tombstone_s)
        self.counters = Counters()
        self.quarantine = Quarantine(self.limits.max_bad_pages, self.limits.quarantine_s)
        self._pulls: dict[int, Incoming] = {}
        self._endings = Endings(self.limits)
        self._next_pull_id = first_pull_id
        self._next_read = 1

    # --- the engine's side -------------------------------------------------------------------------------------------

    def open(self, transfer: Incoming, sources: Sequence[Source]) -> list[Action]:
        """Enter a transfer whose blocks are not held yet.  One of an id that is open or ended lately is refused."""
        if self.ledger.get(transfer.transfer_id) is not None or self.ledger.tombstone(
            transfer.transfer_id, transfer.opened_s
        ):
            raise InternalError(f"transfer {transfer.transfer_id} was opened before")
        groups = range(len(self.terms.layout.groups))
        first, last = transfer.have_tokens // UNIT_TOKENS, -(-transfer.num_tokens // UNIT_TOKENS)
        transfer.missing = {(group, unit) for group in groups for unit in range(first, last)}
        transfer.sources = deque(sources)
        self.ledger.open(transfer)
        self.counters.num_transfers += 1
        return []

    def allocated(self, transfer_id: str, now_s: float) -> list[Action]:
        """The blocks are held (`transfer(id)`): start with the first source."""
        transfer = self.ledger.get(transfer_id)
        if transfer is None or transfer.state is not ConsumerState.PLANNED:
            raise InternalError(f"transfer {transfer_id} is not planned: it cannot be given blocks")
        transfer.state, transfer.has_holds = ConsumerState.ALLOCATED, True
        return self._next_source(transfer, now_s)

    def committed(self, transfer_id: str, now_s: float) -> list[Action]:
        """`Commit` was carried out: tell the producer."""
        transfer = self.ledger.get(transfer_id)
        if transfer is None or transfer.state is not ConsumerState.COMMITTED:
            return []
        transfer.state = ConsumerState.ACKED
        self.counters.num_acked += 1
        if transfer.pull is None:
            raise InternalError(f"transfer {transfer_id}: committed without a pull")
        out = self._send_end(transfer, transfer.pull.source, OUTCOME_ACKED, "", now_s)
        return [*out, *self._close(transfer, Reason.CANCELLED, now_s)]

    def cancel(self, transfer_id: str, reason: Reason, now_s: float) -> list[Action]:
        """End a transfer; `GiveUp` comes when no copy runs any more.  Ignored once it is committed."""
        transfer = self.ledger.get(transfer_id)
        if transfer is None or transfer.failure is not None or transfer.state is ConsumerState.COMMITTED:
            return []
        transfer.failure = reason
        if transfer.pull is None:
            return self._give_up(transfer, reason, now_s)
        return self._fail_pull(transfer, transfer.pull, reason, now_s)

    # --- the copying side --------------------------------------------------------------------------------------------

    def accepts(self, pull_id: int, read: int) -> bool:
        """May bytes of this read be written?  Asked before each chunk; a no is counted."""
        pull = self.live_pull(pull_id)
        if pull is not None and read in pull.reads and pull.failure is None:
            return True
        self.counters.num_late += 1
        return False

    def progressed(self, pull_id: int, now_s: float) -> None:
        """A chunk of this pull was written."""
        pull = self.live_pull(pull_id)
        if pull is not None:
            pull.progress_s, pull.probed_s = now_s, None

    def copied(self, pull_id: int, read: int, digests: bytes, epoch: int, now_s: float) -> list[Action]:
        """A page lies in our blocks; `digests` are over the destination, `epoch` was read after the copy."""
        transfer, pull, order = self._take_read(pull_id, read)
        if transfer is None or pull is None or order is None:
            return []
        if pull.failure is not None:
            return self._quiesced(transfer, pull, now_s)
        pull.progress_s, pull.probed_s = now_s, None
        if not self._is_current(pull, epoch):
            return self._fail_pull(transfer, pull, Reason.STALE, now_s)
        if not self._is_right(order.page, digests):
            return self._bad_page(transfer, pull, order, now_s)
        self.counters.num_pages += 1
        transfer.missing -= order.units
        return self._advance(transfer, pull, now_s)

    def read_failed(self, pull_id: int, read: int, reason: Reason, now_s: float) -> list[Action]:
        """A copy ended without its page, and writes nothing more."""
        transfer, pull, order = self._take_read(pull_id, read)
        if transfer is None or pull is None or order is None:
            return []
        if pull.failure is not None:
            return self._quiesced(transfer, pull, now_s)
        return self._fail_pull(transfer, pull, reason, now_s)

    # --- messages and time -------------------------------------------------------------------------------------------

    def receive(self, message: ToConsumer, now_s: float) -> list[Action]:
        """Take a producer's message; any of them may come late, twice or never."""
        if isinstance(message, EndAck):
            self._endings.acked(message.transfer_id, message.incarnation)
            return []
        pull = self.live_pull(message.pull_id)
        transfer = self._pulls.get(message.pull_id)
        if pull is None or transfer is None or transfer.state not in _LIVE:
            self.counters.num_late += 1
            return []
        incarnation = message.terms.incarnation if isinstance(message, Status) else message.incarnation
        if incarnation != pull.source.incarnation:
            return self._fail_pull(transfer, pull, Reason.PEER_GONE, now_s)
        match message:
            case Status():
                return self._status(transfer, pull, message, now_s)
            case ProducerEnd():
                return self._producer_end(transfer, pull, message, now_s)
            case ProbeReply():
                return self._probe_reply(transfer, pull, message, now_s)

    def void(self, worker_id: str, incarnation: str, now_s: float) -> list[Action]:
        """Worker `worker_id` lives as `incarnation` (empty: not at all): pulls from its other lives fail."""
        out: list[Action] = []
        for transfer in self.ledger:
            pull = transfer.pull
            if pull is not None and pull.failure is None and transfer.state in _LIVE:
                source = pull.source
                if source.worker_id == worker_id and source.incarnation != incarnation:
                    out += self._fail_pull(transfer, pull, Reason.PEER_GONE, now_s)
        self._endings.void(worker_id, incarnation)
        return out

    def tick(self, now_s: float) -> list[Action]:
        """Deadlines, progress time-outs, probes, renewals, and endings that nobody acknowledged."""
        out: list[Action] = []
        for transfer in self.ledger:
            if 0 < transfer.deadline_s <= now_s:
                out += self.cancel(transfer.transfer_id, Reason.TIMEOUT, now_s)
            elif transfer.pull is not None and transfer.pull.failure is None and transfer.state in _LIVE:
                out += self._tick_pull(transfer, transfer.pull, now_s)
        self.quarantine.sweep(now_s)
        self.ledger.sweep(now_s)
        return out + self._endings.tick(now_s)

    def check_integrity(self) -> None:
        """Raise `InternalError` unless pulls, reads and the ledger account for every transfer."""
        self.ledger.check_integrity()
        if {id(t) for t in self._pulls.values()} != {id(t) for t in self.ledger if t.pull is not None}:
            raise InternalError("a pull belongs to no open transfer, or an open transfer's pull is not known")
        for t in self.ledger:
            if t.state in _LIVE and (t.pull is None or t.pull.failure is not None):
                raise InternalError(f"transfer {t.transfer_id}: {t.state} without a live pull")
            if t.state is ConsumerState.FAILED and (t.pull is None or not t.pull.reads):
                raise InternalError(f"transfer {t.transfer_id}: failed, no copy runs, and it is still open")
            if t.state is ConsumerState.PLANNED and t.has_holds:
                raise InternalError(f"transfer {t.transfer_id}: planned, and holds blocks")

    @property
    def num_unacked_endings(self) -> int:
        """Terminal messages of ours that no producer has acknowledged yet."""
        return len(self._endings)

    # --- sources and pulls -------------------------------------------------------------------------------------------

    def _next_source(self, transfer: Incoming, now_s: float, reason: Reason = Reason.PEER_GONE) -> list[Action]:
        self._skip_quarantined(transfer, now_s)
        if transfer.failure is None and transfer.sources:
            return self._start_pull(transfer, transfer.sources.popleft(), now_s)
        return self._give_up(transfer, transfer.failure or reason, now_s)

    def _skip_quarantined(self, transfer: Incoming, now_s: float) -> None:
        """Pass over senders that are out; they still hear that the transfer has ended."""
        while transfer.sources:
            source = transfer.sources[0]
            if not self.quarantine.is_out((source.worker_id, source.incarnation), now_s):
                return
            transfer.skipped.append(transfer.sources.popleft())

    def _start_pull(self, transfer: Incoming, source: Source, now_s: float) -> list[Action]:
        pull = Pull(self._next_pull_id, source, now_s, now_s, now_s)
        self._next_pull_id += 1
        self._pulls[pull.pull_id] = transfer
        transfer.pull, transfer.peer, transfer.state = pull, source.worker_id, ConsumerState.HELLO
        self.counters.num_pulls += 1
        return [self._hello(transfer, pull)]

    def _hello(self, transfer: Incoming, pull: Pull) -> Send:
        first = min((unit for _, unit in transfer.missing), default=-(-transfer.num_tokens // UNIT_TOKENS))
        hashes = [] if pull.source.is_request else list(transfer.hashes)
        transfer_id = self.wire_id(transfer, pull.source)
        message = Hello(transfer_id, pull.pull_id, self.terms, first * UNIT_TOKENS, hashes, transfer.namespace)
        return Send(pull.source.worker_id, message)

    @staticmethod
    def wire_id(transfer: Incoming, source: Source) -> str:
        """A copy by hash is a transfer of its own at its producer, which may know the request's as well."""
        return transfer.transfer_id if source.is_request else transfer.transfer_id + "/hashes"

    def live_pull(self, pull_id: int) -> Pull | None:
        transfer = self._pulls.get(pull_id)
        return None if transfer is None else transfer.pull

    def _take_read(self, pull_id: int, read: int) -> tuple[Incoming | None, Pull | None, ReadOrder | None]:
        transfer, pull = self._pulls.get(pull_id), self.live_pull(pull_id)
        order = None if pull is None else pull.reads.pop(read, None)
        if order is None:
            self.counters.num_late += 1
        return transfer, pull, order

    def _fail_pull(self, transfer: Incoming, pull: Pull, reason: Reason, now_s: float) -> list[Action]:
        """Start to quiesce: no new copy, the running ones are stopped, and what they still bring does not count."""
        if pull.failure is not None:
            return []
        pull.failure, transfer.state = reason, ConsumerState.FAILED
        pull.queue.clear()
        self.counters.count_failure(reason.value)
        stop: list[Action] = [StopReads(pull.pull_id)] if pull.reads else []
        return stop + self._quiesced(transfer, pull, now_s)

    def _quiesced(self, transfer: Incoming, pull: Pull, now_s: float) -> list[Action]:
        if not self._may_leave(pull):
            return []
        self._pulls.pop(pull.pull_id, None)
        transfer.pull = None
        if pull.is_restart and transfer.failure is None:
            return self._start_pull(transfer, pull.source, now_s)
        self._skip_quarantined(transfer, now_s)
        reason = transfer.failure or pull.failure or Reason.PEER_GONE
        key = self._wire_key(transfer, pull.source)
        if transfer.failure is None and transfer.sources and self._wire_key(transfer, transfer.sources[0]) == key:
            return self._next_source(transfer, now_s, reason)
        out = self._send_end(transfer, pull.source, OUTCOME_FAILED, reason.value, now_s)
        return out + self._next_source(transfer, now_s, reason)

    def _wire_key(self, transfer: Incoming, source: Source) -> tuple[str, str, str]:
        """What makes a pair: connectors to the same incarnation are rungs of one."""
        return (source.worker_id, source.incarnation, self.wire_id(transfer, source))

    def _may_leave(self, pull: Pull) -> bool:
        return not pull.reads

    def _give_up(self, transfer: Incoming, reason: Reason, now_s: float) -> list[Action]:
        if reason is not Reason.CANCELLED:
            self.counters.num_recomputes += 1
        transfer.state = ConsumerState.FAILED
        payload = None if transfer.end is None else transfer.end.payload
        out: list[Action] = []
        if transfer.has_holds:
            transfer.has_holds = False
            out.append(GiveUp(transfer.transfer_id, reason, transfer.num_verified, payload))
        return out + self._close(transfer, reason, now_s)

    def _send_end(
        self, transfer: Incoming, source: Source, outcome: str, reason: str, now_s: float, pull_id: int = 0
    ) -> list[Action]:
        """Our terminal message for the pair of this source; its other rungs belong to the same pair."""
        key = self._wire_key(transfer, source)
        for sources in (transfer.sources, transfer.skipped):
            for other in [s for s in sources if self._wire_key(transfer, s) == key]:
                sources.remove(other)
        ids = (self.wire_id(transfer, source), pull_id, self.terms.worker_id, self.terms.incarnation)
        return self._endings.send(source, ConsumerEnd(*ids, outcome, reason), now_s)

    def _close(self, transfer: Incoming, reason: Reason, now_s: float) -> list[Action]:
        """Leave the ledger.  Producers of this request that were never asked hear that nobody will."""
        if transfer.pull is not None:
            self._pulls.pop(transfer.pull.pull_id, None)
            transfer.pull = None
        self.ledger.close(transfer.transfer_id, now_s)
        out: list[Action] = []
        for source in [s for s in (*transfer.sources, *transfer.skipped) if s.is_request]:
            if source in transfer.sources or source in transfer.skipped:
                out += self._send_end(transfer, source, OUTCOME_FAILED, reason.value, now_s)
        return out

    # --- one pull ----------------------------------------------------------------------------------------------------

    def _status(self, transfer: Incoming, pull: Pull, status: Status, now_s: float) -> list[Action]:
        if status.state not in ("reserved", "filling", "ready"):
            reason = Reason.UNKNOWN if status.state == Reason.UNKNOWN.value else Reason.STALE
            return self._fail_pull(transfer, pull, reason, now_s)
        if pull.terms is None:
            if incompatibilities(self.terms, status.terms):
                return self._fail_pull(transfer, pull, Reason.INCOMPATIBLE, now_s)
            pull.terms, pull.epoch, pull.slot = status.terms, status.epoch, status.slot
            pull.progress_s, pull.probed_s = now_s, None
            transfer.state = ConsumerState.PULLING
        elif status.epoch != pull.epoch:
            return self._fail_pull(transfer, pull, Reason.STALE, now_s)
        if status.first > len(pull.pages):
            return []  # pages before these are on the way, or will be asked for again
        new = status.pages[len(pull.pages) - status.first :]
        if new:
            pull.pages += new
            pull.queue += new
            pull.progress_s, pull.probed_s = now_s, None
        return self._advance(transfer, pull, now_s)

    def _producer_end(self, transfer: Incoming, pull: Pull, end: ProducerEnd, now_s: float) -> list[Action]:
        if end.outcome != OUTCOME_READY:
            known = {reason.value: reason for reason in Reason}
            reason = known.get(end.reason, Reason.PEER_GONE)
            return self._fail_pull(transfer, pull, Reason.PEER_GONE if reason is Reason.CANCELLED else reason, now_s)
        if pull.terms is None or end.num_pages > len(pull.pages):
            return []  # its pages were not announced yet: the producer says it again
        if transfer.end is None or not transfer.end.payload:
            transfer.end = end
        pull.has_end = True
        return self._advance(transfer, pull, now_s)

    def _advance(self, transfer: Incoming, pull: Pull, now_s: float) -> list[Action]:
        """Start reads up to the limit; commit when nothing is missing and the producer is done."""
        out: list[Action] = []
        while pull.queue and len(pull.reads) < self.limits.max_reads:
            page = pull.queue.popleft()
            units = self._units_of(transfer, pull, page)
            if not units:
                continue
            order = ReadOrder(self._next_read, page, units)
            self._next_read += 1
            pull.reads[order.read] = order
            out.append(Read(transfer.transfer_id, pull, order))
        if out or pull.reads:
            return out
        if transfer.missing and pull.has_end:
            if not transfer.is_partial:
                return self._fail_pull(transfer, pull, Reason.UNKNOWN, now_s)
            transfer.num_tokens = transfer.num_verified
            transfer.missing.clear()
        if transfer.missing:
            return out
        transfer.state = ConsumerState.VERIFY
        if not self._is_complete(transfer):
            return out
        transfer.state, transfer.has_holds = ConsumerState.COMMITTED, False
        payload = b"" if transfer.end is None else transfer.end.payload
        return [*out, Commit(transfer.transfer_id, transfer.num_tokens, payload)]

    def _units_of(self, transfer: Incoming, pull: Pull, page: Page) -> frozenset[tuple[int, int]]:
        """The units that reading a page brings: those missing, or all of it where pages are whole blocks of ours.

        A whole block is verified by one digest, so what another source had brought of it counts as missing again.
        """
        if pull.terms is None:
            raise InternalError(f"pull {pull.pull_id} has pages before terms")
        block_size = pull.terms.layout.block_size
        num = block_size // UNIT_TOKENS
        first = max(page.index * num, transfer.have_tokens // UNIT_TOKENS)
        last = min((page.index + 1) * num, -(-transfer.num_tokens // UNIT_TOKENS))
        units = frozenset((page.group, unit) for unit in range(first, last))
        missing = units & transfer.missing
        if not missing or block_size != self.terms.layout.block_size:
            return missing
        transfer.missing |= units
        return units

    def _is_complete(self, transfer: Incoming) -> bool:
        return transfer.end is not None

    def _is_current(self, pull: Pull, epoch: int) -> bool:
        return epoch == pull.epoch

    def _is_right(self, page: Page, digests: bytes) -> bool:
        return bool(page.digests) and digests == page.digests

    def _bad_page(self, transfer: Incoming, pull: Pull, order: ReadOrder, now_s: float) -> list[Action]:
        """Fetch a bad page again, unless its sender has sent too many."""
        self.counters.num_bad_pages += 1
        pull.num_bad_pages += 1
        is_out = self.quarantine.add((pull.source.worker_id, pull.source.incarnation), now_s)
        self.counters.num_quarantines += is_out
        if is_out or pull.num_bad_pages >= self.limits.max_bad_pages:
            return self._fail_pull(transfer, pull, Reason.DIGEST, now_s)
        pull.queue.appendleft(order.page)
        return self._advance(transfer, pull, now_s)

    # --- time --------------------------------------------------------------------------------------------------------

    def _tick_pull(self, transfer: Incoming, pull: Pull, now_s: float) -> list[Action]:
        limits = self.limits
        if pull.probed_s is not None and now_s - pull.probed_s >= limits.probe_s:
            return self._fail_pull(transfer, pull, Reason.TIMEOUT, now_s)
        out: list[Action] = []
        if pull.probed_s is None and now_s - pull.progress_s >= max(limits.progress_s, 2 * pull.source.predicted_s):
            pull.probed_s = now_s
            pull.probe_number += 1
            self.counters.num_probes += 1
            probe = Probe(self.terms.worker_id, pull.pull_id, pull.probe_number)
            out.append(Send(pull.source.worker_id, probe))
        is_hello = transfer.state is ConsumerState.HELLO
        if now_s - pull.sent_s >= (limits.hello_s if is_hello else limits.renew_s):
            pull.sent_s = now_s
            out.append(self._hello(transfer, pull) if is_hello else self._renew(transfer, pull))
        return out

    def _renew(self, transfer: Incoming, pull: Pull) -> Send:
        ids = (self.wire_id(transfer, pull.source), pull.pull_id, self.terms.worker_id, self.terms.incarnation)
        return Send(pull.source.worker_id, Renew(*ids, len(pull.pages)))

    def _probe_reply(self, transfer: Incoming, pull: Pull, reply: ProbeReply, now_s: float) -> list[Action]:
        """The peer lives.  Copies that stand still all the same are started again under a new pull id, a few times."""
        if pull.probed_s is None or reply.number != pull.probe_number:
            return []
        pull.probed_s, pull.progress_s, pull.sent_s = None, now_s, now_s
        if not pull.reads:
            is_hello = transfer.state is ConsumerState.HELLO
            return [self._hello(transfer, pull) if is_hello else self._renew(transfer, pull)]
        if transfer.num_restarts >= self.limits.max_restarts:
            return self._fail_pull(transfer, pull, Reason.TIMEOUT, now_s)
        transfer.num_restarts += 1
        self.counters.num_restarts += 1
        pull.is_restart = True
        return self._fail_pull(transfer, pull, Reason.TIMEOUT, now_s)
