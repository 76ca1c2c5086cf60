"""`shm`: workers of one host read each other's pools, which are memfds handed over a Unix socket.

A pool is mapped for writing by its owner, then sealed: nobody else can ever map it writable, shrink or grow it.  The
kernel frees it when its owner is gone and the last reader has unmapped it.  A header segment holds the owner's nonce
(read through the segment, it proves that both are on one host) and the epoch table.
"""

from __future__ import annotations

import array
import fcntl
import mmap
import os
import secrets
import socket
import struct
from collections.abc import Sequence

import numpy as np

from octavo.errors import InternalError
from octavo.transfer.connector.memory import MemoryConnector, View
from octavo.transfer.connector.peer import Event, Gate
from octavo.transfer.machine.noun import Reason
from octavo.transfer.message import Terms

F_ADD_SEALS = 1033
F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE = 0x1, 0x2, 0x4, 0x10
SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL
NONCE_BYTES = 16
MAX_SEGMENTS = 64


def make_segment(name: str, num_bytes: int) -> tuple[int, np.ndarray]:
    """A new memfd of zeros and its one writable view; sealed, so that every later mapping is read-only."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, max(num_bytes, 1))
    view = np.frombuffer(mmap.mmap(fd, max(num_bytes, 1)), np.uint8)
    fcntl.fcntl(fd, F_ADD_SEALS, SEALS)
    return fd, view


def map_segment(fd: int) -> np.ndarray:
    """A read-only view of a segment; it keeps the map alive, the descriptor may be closed."""
    return np.frombuffer(mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ), np.uint8)


class _Attach:
    """One connection that fetches a producer's segments, step by step."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setblocking(False)
        self.socket.connect("\0" + address)

    def fetch(self) -> list[int] | None:
        """The descriptors, or None while they have not come."""
        try:
            data, ancillary, flags, _ = self.socket.recvmsg(16, socket.CMSG_SPACE(MAX_SEGMENTS * 4))
        except BlockingIOError:
            return None
        fds = array.array("i")
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
        if not data or flags & socket.MSG_CTRUNC:
            for fd in fds:
                os.close(fd)
            raise ConnectionError("the producer closed the connection before it sent its segments")
        return list(fds)


class ShmConnector(MemoryConnector):
    """Copies straight out of the other worker's pool."""

    name = "shm"

    def __init__(self) -> None:
        super().__init__()
        self._fds: dict[int, int] = {}
        self._served: list[int] = []
        self._server: socket.socket | None = None
        self._views: dict[str, View] = {}
        self._attaching: dict[str, _Attach] = {}
        self.nonce = secrets.token_bytes(NONCE_BYTES)

    def allocate(self, shape: tuple[int, int]) -> np.ndarray:
        fd, view = make_segment("octavo-kv", shape[0] * shape[1])
        self._fds[view.__array_interface__["data"][0]] = fd
        return view[: shape[0] * shape[1]].reshape(shape)

    def register(self, terms: Terms, regions: Sequence[np.ndarray], epochs: np.ndarray, gate: Gate) -> str:
        """`regions` and `epochs` must come from `allocate`; the table is `uint8` seen as `uint64`."""
        self._served = [self._fd_of(epochs), *(self._fd_of(region) for region in regions)]
        header_fd, header = make_segment("octavo-kv-nonce", NONCE_BYTES)
        header[:NONCE_BYTES] = np.frombuffer(self.nonce, np.uint8)
        self._fds[header.__array_interface__["data"][0]] = header_fd
        self._served.insert(0, header_fd)
        address = f"octavo-shm-{secrets.token_hex(8)}"
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.setblocking(False)
        self._server.bind("\0" + address)
        self._server.listen(64)
        return address

    def _fd_of(self, memory: np.ndarray) -> int:
        fd = self._fds.get(memory.__array_interface__["data"][0])
        if fd is None:
            raise InternalError("shm: a region must be allocated by the connector that registers it")
        return fd

    def poll(self) -> list[Event]:
        self._serve()
        return super().poll()

    def _serve(self) -> None:
        """Hand our segments to processes of the same user."""
        while self._server is not None:
            try:
                peer, _ = self._server.accept()
            except BlockingIOError:
                return
            with peer:
                size = struct.calcsize("3i")
                _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
                if uid == os.getuid():
                    socket.send_fds(peer, [b"octavo"], self._served)

    def view(self, terms: Terms) -> View | Reason | None:
        known = self._views.get(terms.incarnation)
        if known is not None:
            return known
        try:
            if terms.incarnation not in self._attaching:
                self._attaching[terms.incarnation] = _Attach(terms.connectors[self.name])
            fds = self._attaching[terms.incarnation].fetch()
        except OSError:
            self._end_attach(terms.incarnation)
            return Reason.PEER_GONE
        if fds is None:
            return None
        self._end_attach(terms.incarnation)
        view = self._map(fds, terms)
        if isinstance(view, View):
            self._views[terms.incarnation] = view
        return view

    @staticmethod
    def _map(fds: list[int], terms: Terms) -> View | Reason:
        segments = [map_segment(fd) for fd in fds]
        for fd in fds:
            os.close(fd)
        if len(segments) != len(terms.shards) + 2 or bytes(segments[0][:NONCE_BYTES]) != terms.nonce:
            return Reason.INCOMPATIBLE
        regions = []
        for shard, segment in zip(terms.shards, segments[2:], strict=True):
            if not shard.num_blocks or segment.size % shard.num_blocks:
                return Reason.INCOMPATIBLE
            regions.append(segment.reshape(shard.num_blocks, -1))
        return View(regions, segments[1].view(np.uint64))

    def _end_attach(self, incarnation: str) -> None:
        attach = self._attaching.pop(incarnation, None)
        if attach is not None:
            attach.socket.close()

    def close(self, pull_id: int | None = None) -> list[Event]:
        out = super().close(pull_id)
        if pull_id is None:
            for incarnation in list(self._attaching):
                self._end_attach(incarnation)
            self._views.clear()
            if self._server is not None:
                self._server.close()
                self._server = None
            for fd in self._fds.values():
                os.close(fd)
            self._fds.clear()
        return out

    def forget(self, incarnation: str) -> None:
        self._views.pop(incarnation, None)
        self._end_attach(incarnation)

    def descriptors(self) -> list[int]:
        sockets = [a.socket.fileno() for a in self._attaching.values()]
        return sockets if self._server is None else [*sockets, self._server.fileno()]

    @property
    def is_busy(self) -> bool:
        return bool(self._copies) or any(page.source.incarnation in self._views for page in self._reads.values())
