"""Sockets between workers: control messages of transfers (`PeerLink`), and bulk bytes (`BulkServer`, `BulkClient`).

Nothing here blocks and nothing has a thread: whoever owns them polls, and may wait on their descriptors.  ZMQ's
descriptors are edge-triggered, so every poll takes all that is there or is followed by another one.
"""

from __future__ import annotations

import zmq

MAX_CONTROL_BYTES = 16 << 20
MAX_REQUEST_BYTES = 1 << 20
SEND_QUEUE = 8
"""Frames of bulk bytes that are queued per consumer; with 1 MiB frames, the most that is sent for nothing."""
BATCH = 64


def _endpoint(socket: zmq.Socket[bytes], host: str) -> str:
    return f"tcp://{host}:{socket.bind_to_random_port(f'tcp://{host}')}"


class PeerLink:
    """Control messages: one socket to receive on, one to each peer that was written to.  What cannot be sent is lost,
    as the machine expects of a link."""

    def __init__(self, host: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._inbox = self._context.socket(zmq.PULL)
        self._inbox.setsockopt(zmq.MAXMSGSIZE, MAX_CONTROL_BYTES)
        self.address = _endpoint(self._inbox, host)
        self._peers: dict[str, zmq.Socket[bytes]] = {}
        self.num_unsent = 0

    def send(self, address: str, frame: bytes) -> None:
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = self._context.socket(zmq.PUSH)
            peer.setsockopt(zmq.LINGER, 200)
            peer.setsockopt(zmq.SNDHWM, 256)
            peer.connect(address)
        try:
            peer.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            self.num_unsent += 1

    def poll(self) -> list[bytes]:
        """Messages that have come, in order per peer."""
        frames: list[bytes] = []
        while len(frames) < BATCH:
            try:
                frames.append(self._inbox.recv(zmq.NOBLOCK))
            except zmq.Again:
                break
        return frames

    def forget(self, address: str) -> None:
        peer = self._peers.pop(address, None)
        if peer is not None:
            peer.close(linger=0)

    def descriptors(self) -> list[int]:
        return [int(self._inbox.getsockopt(zmq.FD))]

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
        self._inbox.close()
        self._context.term()


class BulkServer:
    """The producer's ROUTER: requests come in, frames go out, at most `SEND_QUEUE` ahead of the consumer."""

    def __init__(self, host: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.SNDHWM, SEND_QUEUE)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_REQUEST_BYTES)
        self.address = _endpoint(self._socket, host)

    def requests(self) -> list[tuple[bytes, bytes]]:
        """(who asks, request) of what has come."""
        out: list[tuple[bytes, bytes]] = []
        while len(out) < BATCH:
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            if len(parts) == 2:
                out.append((parts[0], parts[1]))
        return out

    def send(self, peer: bytes, head: bytes, body: memoryview | bytes = b"") -> bool | None:
        """True when sent (`body` is copied), False when the queue is full, None when the peer is gone."""
        try:
            self._socket.send_multipart((peer, head, body), zmq.NOBLOCK, copy=True)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return None
        return True

    def descriptors(self) -> list[int]:
        return [int(self._socket.getsockopt(zmq.FD))]

    def close(self) -> None:
        self._socket.close()
        self._context.term()


class BulkClient:
    """The consumer's DEALER to one producer."""

    def __init__(self, address: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVHWM, SEND_QUEUE)
        self._socket.connect(address)

    def ask(self, request: bytes) -> bool:
        try:
            self._socket.send(request, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self) -> tuple[bytes, memoryview] | None:
        """The next (head, body), or None.  The body is a view of ZMQ's own memory."""
        try:
            parts = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        if len(parts) != 2:
            return b"", memoryview(b"")
        return parts[0].bytes, memoryview(parts[1].buffer)

    def descriptors(self) -> list[int]:
        return [int(self._socket.getsockopt(zmq.FD))]

    def close(self) -> None:
        self._socket.close()
        self._context.term()
