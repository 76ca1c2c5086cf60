"""`Endpoint`: one worker's end of all transfers: the two machines, a link, and connectors, driven by one thread.

It owns what every transport needs: it carries out the machines' actions, fills in digests when pages are announced,
finds the connector of a pull, and visits the fault points.  `step` never blocks and does a bounded piece of work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import numpy as np

from octavo import faults
from octavo.errors import InternalError
from octavo.transfer.connector.peer import Copied, Event, PageRead, PeerConnector, Progressed, page_digests
from octavo.transfer.link import Link
from octavo.transfer.machine.action import (
    Action,
    Begin,
    Cancel,
    Commit,
    Free,
    GiveUp,
    Lookup,
    Read,
    Send,
    SetEpoch,
    StopReads,
)
from octavo.transfer.machine.consumer import Consumer
from octavo.transfer.machine.noun import Incoming, Limits, Reason, Source
from octavo.transfer.machine.producer import Producer
from octavo.transfer.message import PEER, Hello, Page, Status, Terms, ToProducer
from octavo.transfer.page_map import PageMap
from octavo.wire.message import UnknownVersion

POINTS = (
    "transfer.send",
    "transfer.receive",
    "transfer.before_read",
    "transfer.after_read",
    "transfer.before_commit",
    "transfer.before_free",
)
"""Fault points of every connector; `transfer.send` carries frames (drop, double, reorder)."""
TICK_S = 0.05


class EngineHooks(Protocol):
    """What an endpoint tells its engine.  Called on the endpoint's thread; must not call back into it."""

    def begin(self, transfer_id: str) -> None:
        """The consumer is there."""

    def free(self, transfer_id: str) -> None:
        """Release the holds that the outgoing transfer has."""

    def cancel(self, transfer_id: str, reason: Reason) -> None:
        """Nobody wants this request's pages any more."""

    def lookup(self, hello: Hello) -> None:
        """Hold what there is of these hashes, then reserve, fill and finish the transfer."""

    def commit(self, transfer_id: str, num_tokens: int, payload: bytes) -> None:
        """Make the pages of an incoming transfer visible; then call `committed`."""

    def give_up(self, transfer_id: str, reason: Reason, num_tokens: int, payload: bytes | None) -> None:
        """Release an incoming transfer's holds; the first `num_tokens` tokens are verified."""


class Endpoint:
    """Not thread-safe: one thread calls everything here."""

    def __init__(
        self,
        terms: Terms,
        regions: Sequence[np.ndarray],
        connectors: Sequence[PeerConnector],
        link: Link,
        hooks: EngineHooks,
        clock: Callable[[], float],
        limits: Limits | None = None,
        *,
        memory: PeerConnector | None = None,
        first_epoch: int = 1,
        first_pull_id: int = 1,
    ) -> None:
        """`terms` lack connectors and nonce.  `regions` `[num_blocks, block_bytes]` are in the order of its shards and
        come from `memory.allocate`, where one of the connectors needs memory of its own kind."""
        limits = limits or Limits()
        self._hooks, self._link, self._clock = hooks, link, clock
        self._regions = list(regions)
        table = (memory or connectors[0]).allocate((1, limits.num_slots * 8))
        self._epochs = table.reshape(-1).view(np.uint64)
        self._connectors = {c.name: c for c in connectors}
        addresses = {c.name: c.register(terms, self._regions, self._epochs, self) for c in connectors}
        nonce = next((n for c in connectors if (n := getattr(c, "nonce", b""))), b"")
        self.terms = msgspec.structs.replace(terms, connectors={"control": link.address, **addresses}, nonce=nonce)
        self.producer = Producer(self.terms, limits, first_epoch)
        self.consumer = Consumer(self.terms, limits, first_pull_id)
        self._addresses: dict[str, str] = {}
        self._tables: dict[str, Sequence[Sequence[int]]] = {}
        self._pull_connectors: dict[int, PeerConnector] = {}
        self._maps: dict[tuple[str, str], PageMap] = {}
        self._digests: dict[str, dict[tuple[int, int], bytes]] = {}
        self._next_tick_s = clock()
        self.num_bytes: dict[str, int] = dict.fromkeys(self._connectors, 0)
        self.num_malformed = 0

    # --- the engine's verbs ------------------------------------------------------------------------------------------

    def reserve(self, transfer_id: str, owner: tuple[str, int]) -> None:
        self._run(self.producer.reserve(transfer_id, owner, self._clock()))

    def fill(self, transfer_id: str, pages: Sequence[Page]) -> None:
        self._run(self.producer.fill(transfer_id, pages, self._clock()))

    def finish(self, transfer_id: str, num_tokens: int, payload: bytes = b"") -> None:
        self._run(self.producer.finish(transfer_id, num_tokens, payload, self._clock()))

    def fail(self, transfer_id: str, reason: Reason) -> None:
        self._run(self.producer.fail(transfer_id, reason, self._clock()))

    def open(self, transfer: Incoming, sources: Sequence[Source], peers: Sequence[Terms]) -> None:
        """Plan an incoming transfer; `peers` are the terms of the sources' workers (their control address counts)."""
        for terms in peers:
            self._addresses[terms.worker_id] = terms.connectors["control"]
        self._run(self.consumer.open(transfer, sources))

    def allocated(self, transfer_id: str, tables: Sequence[Sequence[int]]) -> None:
        """Our blocks for the transfer, one table per group, from the first token of the sequence on."""
        self._tables[transfer_id] = tables
        self._run(self.consumer.allocated(transfer_id, self._clock()))

    def committed(self, transfer_id: str) -> None:
        self._run(self.consumer.committed(transfer_id, self._clock()))

    def cancel(self, transfer_id: str, reason: Reason = Reason.CANCELLED) -> None:
        self._run(self.consumer.cancel(transfer_id, reason, self._clock()))

    def void(self, worker_id: str, incarnation: str) -> None:
        """Worker `worker_id` lives as `incarnation` (empty: not at all)."""
        now_s = self._clock()
        self._run(self.producer.void(worker_id, incarnation, now_s) + self.consumer.void(worker_id, incarnation, now_s))

    # --- the thread's verbs ------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Take messages, let each connector work once, and tick; True when there was something to do."""
        frames = self._link.poll()
        for frame in frames:
            faults.point("transfer.receive")
            self._receive(frame)
        events = [e for connector in self._connectors.values() for e in connector.poll()]
        for event in events:
            self._run(self._take(event))
        now_s = self._clock()
        if now_s >= self._next_tick_s:
            self._next_tick_s = now_s + TICK_S
            self._run(self.producer.tick(now_s) + self.consumer.tick(now_s))
            for pull_id in [p for p in self._pull_connectors if self.consumer.live_pull(p) is None]:
                del self._pull_connectors[pull_id]
        return bool(frames or events)

    @property
    def is_busy(self) -> bool:
        """Whether `step` has work that no descriptor announces."""
        return any(c.is_busy for c in self._connectors.values())

    def descriptors(self) -> list[int]:
        return self._link.descriptors() + [fd for c in self._connectors.values() for fd in c.descriptors()]

    def check_integrity(self) -> None:
        """Raise `InternalError` unless machines, tables and pulls agree."""
        self.producer.check_integrity()
        self.consumer.check_integrity()
        opened = {t.transfer_id for t in self.consumer.ledger}
        if not set(self._tables) <= opened:
            raise InternalError(f"tables of transfers that ended: {sorted(set(self._tables) - opened)[:8]}")

    def forget(self, terms: Terms) -> None:
        """An incarnation is gone for good: let go of its memory, connections and address."""
        self.void(terms.worker_id, "")
        for connector in self._connectors.values():
            connector.forget(terms.incarnation)
        self._link.forget(terms.connectors.get("control", ""))
        self._maps = {key: m for key, m in self._maps.items() if terms.incarnation not in key}

    def close(self) -> None:
        """Let go of everything; the transfers that are open end with this incarnation."""
        for connector in self._connectors.values():
            connector.close()
        self._link.close()

    # --- Gate: what connectors that serve bytes ask ------------------------------------------------------------------

    def begin_read(self, transfer_id: str, pull_id: int, epoch: int, block: int) -> bool:
        transfer = self.producer.ledger.get(transfer_id)
        is_its_own = transfer is not None and any(page.block == block for page in transfer.pages)
        return is_its_own and self.producer.begin_read(transfer_id, pull_id, epoch)

    def end_read(self, transfer_id: str) -> None:
        self._run(self.producer.end_read(transfer_id, self._clock()))

    def epoch_of(self, slot: int) -> int:
        return int(self._epochs[slot])

    # --- inside ------------------------------------------------------------------------------------------------------

    def _receive(self, frame: bytes) -> None:
        try:
            message = PEER.decode(frame)
        except (UnknownVersion, msgspec.DecodeError):
            self.num_malformed += 1
            return
        now_s = self._clock()
        if isinstance(message, Hello):
            self._addresses[message.terms.worker_id] = message.terms.connectors.get("control", "")
        if isinstance(message, ToProducer):
            self._run(self.producer.receive(message, now_s))
        else:
            self._run(self.consumer.receive(message, now_s))

    def _take(self, event: Event) -> list[Action]:
        now_s = self._clock()
        if isinstance(event, Progressed):
            connector = self._pull_connectors.get(event.pull_id)
            if connector is not None:
                self.num_bytes[connector.name] += event.num_bytes
            self.consumer.progressed(event.pull_id, now_s)
            return []
        if isinstance(event, Copied):
            faults.point("transfer.after_read")
            return self.consumer.copied(event.pull_id, event.read, event.digests, event.epoch, now_s)
        return self.consumer.read_failed(event.pull_id, event.read, event.reason, now_s)

    def _run(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send(peer=peer, message=message):
                    frame = PEER.encode(self._with_digests(message) if isinstance(message, Status) else message)
                    self._send(peer, frame)
                case SetEpoch(slot=slot, epoch=epoch):
                    self._epochs[slot] = epoch
                case Free(transfer_id=transfer_id):
                    faults.point("transfer.before_free")
                    self._digests.pop(transfer_id, None)
                    self._hooks.free(transfer_id)
                case Begin(transfer_id=transfer_id):
                    self._hooks.begin(transfer_id)
                case Cancel(transfer_id=transfer_id, reason=reason):
                    self._hooks.cancel(transfer_id, reason)
                case Lookup(hello=hello):
                    self._hooks.lookup(hello)
                case Read():
                    self._read(action)
                case StopReads(pull_id=pull_id):
                    connector = self._pull_connectors.pop(pull_id, None)
                    for event in [] if connector is None else connector.close(pull_id):
                        self._run(self._take(event))
                case Commit(transfer_id=transfer_id, num_tokens=num_tokens, payload=payload):
                    faults.point("transfer.before_commit")
                    self._tables.pop(transfer_id, None)
                    self._hooks.commit(transfer_id, num_tokens, payload)
                case GiveUp():
                    self._tables.pop(action.transfer_id, None)
                    self._hooks.give_up(action.transfer_id, action.reason, action.num_tokens, action.payload)

    def _send(self, peer: str, frame: bytes) -> None:
        address = self._addresses.get(peer)
        if address:
            faults.frame("transfer.send", frame, lambda data: self._link.send(address, data))

    def _map(self, source: Terms, target: Terms) -> PageMap:
        key = (source.incarnation, target.incarnation)
        if key not in self._maps:
            self._maps[key] = PageMap(source, target)
        return self._maps[key]

    def _with_digests(self, status: Status) -> Status:
        """Take the digests of announced pages, once per page: under their hold they do not change."""
        transfer = self.producer.ledger.get(status.transfer_id)
        if not status.pages or transfer is None or transfer.terms is None:
            return status
        page_map = self._map(self.terms, transfer.terms)
        known = self._digests.setdefault(status.transfer_id, {})
        pages = []
        for page in status.pages:
            key = (page.group, page.index)
            if key not in known:
                known[key] = page_digests(page_map, page, self._regions)
            pages.append(msgspec.structs.replace(page, digests=known[key]))
        return msgspec.structs.replace(status, pages=pages)

    def _read(self, action: Read) -> None:
        pull, order = action.pull, action.order
        terms, connector = pull.terms, self._connectors.get(pull.source.connector)
        now_s = self._clock()
        if (
            pull.failure is not None
        ):  # an earlier read of the same batch failed, and its pull was stopped before this one
            self._run(self.consumer.read_failed(pull.pull_id, order.read, pull.failure, now_s))
            return
        if terms is None or connector is None or connector.validate(self.terms, terms):
            self._run(self.consumer.read_failed(pull.pull_id, order.read, Reason.INCOMPATIBLE, now_s))
            return
        faults.point("transfer.before_read")
        page_map = self._map(terms, self.terms)
        first = page_map.first_token(order.page.index) // page_map.target_block_size
        transfer = self.consumer.ledger.get(action.transfer_id)
        if transfer is None:
            return
        self._pull_connectors[pull.pull_id] = connector
        connector.read(
            PageRead(
                transfer_id=self.consumer.wire_id(transfer, pull.source),
                pull_id=pull.pull_id,
                read=order.read,
                epoch=pull.epoch,
                slot=pull.slot,
                page=order.page,
                units=tuple(sorted(unit for _, unit in order.units)),
                source=terms,
                page_map=page_map,
                blocks=self._tables[action.transfer_id][order.page.group][first:],
                regions=self._regions,
                accepts=lambda: self.consumer.accepts(pull.pull_id, order.read),
            )
        )
