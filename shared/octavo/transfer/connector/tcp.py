"""`tcp`: the producer reads its own pages and sends them in frames of at most 1 MiB over ZMQ.

The producer holds a local read from the first byte of a page to the last, so its blocks cannot go while they are sent;
a transfer that ends meanwhile is refused at the next frame.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from octavo.transfer.connector.peer import (
    CACHE_BYTES,
    CHUNK_BYTES,
    POLL_BYTES,
    Copied,
    Event,
    Gate,
    PageRead,
    PeerConnector,
    Progressed,
    ReadFailed,
)
from octavo.transfer.machine.noun import Reason
from octavo.transfer.message import Terms
from octavo.wire.bulk import BulkClient, BulkServer
from octavo.wire.message import Codec, UnknownVersion

logger = logging.getLogger(__name__)


class Ask(msgspec.Struct, array_like=True, tag="ask"):
    """Send these (shard, offset, number of bytes) of a block, in this order."""

    transfer_id: str
    pull_id: int
    read: int
    epoch: int
    slot: int
    block: int
    runs: list[tuple[int, int, int]]


class Head(msgspec.Struct, array_like=True, tag="head"):
    """Heads each frame: `offset` of its body within the page.  The last one carries the epoch read after the copy."""

    pull_id: int
    read: int
    offset: int
    is_last: bool = False
    epoch: int = 0
    is_refused: bool = False


MIN_FRAME_BYTES = 4096
"""What a frame counts for at least, so that empty ones cannot keep a poll busy."""
CODEC: Codec[Ask | Head] = Codec(Ask | Head)


@dataclass(slots=True)
class _Job:
    """A page on its way out."""

    peer: bytes
    ask: Ask
    chunks: deque[list[tuple[int, int, int]]]
    sent: int = 0


@dataclass(slots=True)
class _Arrival:
    """A page on its way in: how far it has come, in bytes, and where in its runs that is."""

    page: PageRead
    offset: int = 0
    run_idx: int = 0
    run_offset: int = 0
    num_bytes: int = field(default=0)


def cut(runs: Sequence[tuple[int, int, int]]) -> deque[list[tuple[int, int, int]]]:
    """Runs as frames of at most `CHUNK_BYTES`."""
    out: deque[list[tuple[int, int, int]]] = deque()
    room = 0
    for shard, offset, size in runs:
        while size:
            if not room:
                out.append([])
                room = CHUNK_BYTES
            part = min(size, room)
            out[-1].append((shard, offset, part))
            offset, size, room = offset + part, size - part, room - part
    return out


class TcpConnector(PeerConnector):
    """Asks for pages at other workers and serves ours."""

    name = "tcp"

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host
        self._server: BulkServer | None = None
        self._gate: Gate | None = None
        self._regions: list[np.ndarray] = []
        self._jobs: deque[_Job] = deque()
        self._clients: dict[str, BulkClient] = {}
        self._arrivals: dict[tuple[int, int], _Arrival] = {}
        self._events: list[Event] = []

    # --- serving -----------------------------------------------------------------------------------------------------

    def register(self, terms: Terms, regions: Sequence[np.ndarray], epochs: np.ndarray, gate: Gate) -> str:
        self._server = BulkServer(self._host)
        self._regions, self._gate = list(regions), gate
        return self._server.address

    def _serve(self) -> None:
        if self._server is None or self._gate is None:
            return
        for peer, request in self._server.requests():
            try:
                ask = CODEC.decode(request)
            except (UnknownVersion, msgspec.DecodeError) as error:
                logger.warning("dropped a malformed request for a page: %s", error)
                continue
            if isinstance(ask, Ask):
                self._begin(peer, ask, self._server, self._gate)
        for _ in range(len(self._jobs)):
            job = self._jobs.popleft()
            if not self._send(job, self._server, self._gate):
                self._jobs.append(job)

    def _begin(self, peer: bytes, ask: Ask, server: BulkServer, gate: Gate) -> None:
        sizes = [region.shape[1] for region in self._regions]
        is_inside = all(
            0 <= shard < len(sizes) and offset >= 0 and size > 0 and offset + size <= sizes[shard]
            for shard, offset, size in ask.runs
        )
        if is_inside and gate.begin_read(ask.transfer_id, ask.pull_id, ask.epoch, ask.block):
            self._jobs.append(_Job(peer, ask, cut(ask.runs)))
        else:
            server.send(peer, CODEC.encode(Head(ask.pull_id, ask.read, 0, is_refused=True)))

    def _send(self, job: _Job, server: BulkServer, gate: Gate) -> bool:
        """Send one frame of a job; True when the job is over."""
        ask = job.ask
        epoch = gate.epoch_of(ask.slot)
        if epoch != ask.epoch:
            gate.end_read(ask.transfer_id)
            server.send(job.peer, CODEC.encode(Head(ask.pull_id, ask.read, job.sent, is_refused=True)))
            return True
        chunk = job.chunks[0]
        head = Head(ask.pull_id, ask.read, job.sent, len(job.chunks) == 1, epoch)
        was_sent = server.send(job.peer, CODEC.encode(head), self._body(ask.block, chunk))
        if was_sent:
            job.chunks.popleft()
            job.sent += sum(size for _, _, size in chunk)
        if was_sent is None or not job.chunks:
            gate.end_read(ask.transfer_id)
            return True
        return False

    def _body(self, block: int, chunk: list[tuple[int, int, int]]) -> memoryview:
        parts = [self._regions[shard][block, offset : offset + size] for shard, offset, size in chunk]
        return parts[0].data if len(parts) == 1 else np.concatenate(parts).data

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, page: PageRead) -> None:
        client = self._clients.get(page.source.incarnation)
        if client is None:
            client = self._clients[page.source.incarnation] = BulkClient(page.source.connectors[self.name])
        runs = [(r.source_shard, r.source_offset, r.num_bytes) for r in page.runs]
        ask = Ask(page.transfer_id, page.pull_id, page.read, page.epoch, page.slot, page.page.block, runs)
        if client.ask(CODEC.encode(ask)):
            total = sum(size for _, _, size in runs)
            self._arrivals[page.pull_id, page.read] = _Arrival(page, num_bytes=total)
        else:
            self._events.append(ReadFailed(page.pull_id, page.read, Reason.PEER_GONE))

    def poll(self) -> list[Event]:
        self._serve()
        out, self._events = self._events, []
        for client in self._clients.values():
            num_left = POLL_BYTES
            while num_left > 0 and (received := client.receive()) is not None:
                num_left -= max(len(received[1]), MIN_FRAME_BYTES)
                out += self._take(*received)
        return out

    def _take(self, data: bytes, body: memoryview) -> list[Event]:
        try:
            head = CODEC.decode(data)
        except (UnknownVersion, msgspec.DecodeError) as error:
            logger.warning("dropped a malformed frame of a page: %s", error)
            return []
        if not isinstance(head, Head):
            return []
        key = (head.pull_id, head.read)
        arrival = self._arrivals.get(key)
        if arrival is None:
            return [ReadFailed(*key, Reason.STALE)]  # nobody waits for it: the machine counts it as late
        if head.is_refused:
            del self._arrivals[key]
            return [ReadFailed(*key, Reason.STALE)]
        is_next = head.offset == arrival.offset and head.offset + len(body) <= arrival.num_bytes
        if not is_next or not arrival.page.accepts():
            return []  # doubled, out of order or no longer wanted; a page that stays incomplete times out
        self._write(arrival, np.frombuffer(body, np.uint8))
        out: list[Event] = [Progressed(*key, len(body))]
        if arrival.offset == arrival.num_bytes and head.is_last:
            del self._arrivals[key]
            out.append(Copied(*key, arrival.page.digests(), head.epoch))
        return out

    @staticmethod
    def _write(arrival: _Arrival, body: np.ndarray) -> None:
        page, at = arrival.page, 0
        runs = page.runs
        while at < body.size:
            run = runs[arrival.run_idx]
            size = min(run.num_bytes - arrival.run_offset, body.size - at, CACHE_BYTES)
            target = page.target(run, arrival.run_offset, size)
            np.copyto(target, body[at : at + size])
            page.wrote(run, target)
            at, arrival.run_offset = at + size, arrival.run_offset + size
            if arrival.run_offset == run.num_bytes:
                arrival.run_idx, arrival.run_offset = arrival.run_idx + 1, 0
        arrival.offset += body.size

    # --- ends --------------------------------------------------------------------------------------------------------

    def close(self, pull_id: int | None = None) -> list[Event]:
        keys = [key for key in self._arrivals if pull_id is None or key[0] == pull_id]
        for key in keys:
            del self._arrivals[key]
        if pull_id is None:
            for incarnation in list(self._clients):
                self.forget(incarnation)
            self._close_server()
        return [ReadFailed(*key, Reason.CANCELLED) for key in keys]

    def _close_server(self) -> None:
        while self._jobs and self._gate is not None:
            self._gate.end_read(self._jobs.popleft().ask.transfer_id)
        if self._server is not None:
            self._server.close()
            self._server = None

    def forget(self, incarnation: str) -> None:
        client = self._clients.pop(incarnation, None)
        if client is not None:
            client.close()

    def descriptors(self) -> list[int]:
        servers = [] if self._server is None else self._server.descriptors()
        return servers + [fd for client in self._clients.values() for fd in client.descriptors()]

    @property
    def is_busy(self) -> bool:
        return bool(self._jobs or self._arrivals)
