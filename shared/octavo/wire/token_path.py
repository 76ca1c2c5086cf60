"""The token path: a worker's ROUTER (`TokenServer`) and a gateway's DEALER per session (`TokenClient`).

All connections go gateway → worker.  A DEALER's routing id is its session's token; its first frame is a hello.  The
ROUTER never blocks: a full queue (EAGAIN) blocks that session until it drains, an unknown peer (EHOSTUNREACH) loses the
frame, which the gateway fetches again with Resend.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable

import msgspec
import zmq

from octavo.wire.message import TO_GATEWAY, TO_WORKER, DealerHello, ToGateway, UnknownVersion
from octavo.wire.reader import SocketReader

logger = logging.getLogger(__name__)

SEND_QUEUE = 64
"""Frames that ZMQ queues per session before the session counts as blocked."""
RETRY_MS = 10
MAX_HELLO_BYTES = 1024
"""Gateways send nothing but hellos here."""
SEND_BUFFER_BYTES = 256 * 1024


class TokenServer:
    """The worker's ROUTER on a thread of its own.

    Callbacks run on that thread: `on_hello(token, session_id)`, `on_blocked(token)`, `on_writable(token)`.  Frames of a
    blocked session wait here, in order; its requests should be paused meanwhile, which bounds them.
    """

    def __init__(
        self,
        host: str,
        on_hello: Callable[[bytes, str], object],
        on_blocked: Callable[[bytes], object],
        on_writable: Callable[[bytes], object],
        *,
        send_queue: int = SEND_QUEUE,
        send_buffer_bytes: int = SEND_BUFFER_BYTES,
    ) -> None:
        self._on_hello, self._on_blocked, self._on_writable = on_hello, on_blocked, on_writable
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._socket.setsockopt(zmq.SNDHWM, send_queue)
        self._socket.setsockopt(zmq.SNDBUF, send_buffer_bytes)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_HELLO_BYTES)
        self._socket.setsockopt(zmq.LINGER, 1000)
        port = self._socket.bind_to_random_port(f"tcp://{host}")
        self.address = f"tcp://{host}:{port}"
        self._inbox: deque[tuple[bytes, bytes | None]] = deque()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._blocked: dict[bytes, deque[bytes]] = {}
        self._is_stopping = False
        self.num_frames = 0
        self.num_unreachable = 0
        self._thread = threading.Thread(target=self._run, name="token-path", daemon=True)
        self._thread.start()

    def send(self, token: bytes, frame: bytes) -> None:
        """Queue a frame for a session; any thread."""
        self._inbox.append((token, frame))
        os.eventfd_write(self._wake_fd, 1)

    def forget(self, token: bytes) -> None:
        """Drop what waits for a session that ended; any thread."""
        self._inbox.append((token, None))
        os.eventfd_write(self._wake_fd, 1)

    def close(self) -> None:
        """Stop the thread and close the socket."""
        if not self._is_stopping:
            self._is_stopping = True
            os.eventfd_write(self._wake_fd, 1)
            self._thread.join()
            os.close(self._wake_fd)

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._wake_fd, zmq.POLLIN)
        while not self._is_stopping:
            events = dict(poller.poll(RETRY_MS if self._blocked else None))
            if self._wake_fd in events:
                os.eventfd_read(self._wake_fd)
            if self._socket in events:
                self._take_hellos()
            self._send_waiting()
        self._socket.close()
        self._context.term()

    def _take_hellos(self) -> None:
        while True:
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                message = TO_WORKER.decode(parts[-1])
            except (UnknownVersion, msgspec.DecodeError) as error:
                logger.warning("dropped a malformed frame of a gateway: %s", error)
                continue
            if isinstance(message, DealerHello):
                self._on_hello(parts[0], message.session_id)

    def _send_waiting(self) -> None:
        for token, frames in list(self._blocked.items()):
            while frames and self._try_send(token, frames[0]):
                frames.popleft()
            if not frames:
                del self._blocked[token]
                self._on_writable(token)
        while self._inbox:
            token, frame = self._inbox.popleft()
            if frame is None:
                self._blocked.pop(token, None)
            elif token in self._blocked:
                self._blocked[token].append(frame)
            elif not self._try_send(token, frame):
                self._blocked[token] = deque((frame,))
                self._on_blocked(token)

    def _try_send(self, token: bytes, frame: bytes) -> bool:
        """False when the session's queue is full.  A frame for an unknown peer counts as done: Resend brings it."""
        try:
            self._socket.send_multipart((token, frame), zmq.NOBLOCK)
            self.num_frames += 1
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self.num_unreachable += 1
        return True


class TokenClient:
    """A gateway's DEALER for one session; hands messages to `on_messages` on the running loop, in batches."""

    def __init__(
        self,
        address: str,
        session_token: bytes,
        session_id: str,
        on_messages: Callable[[list[ToGateway]], None],
        *,
        receive_queue: int = 64,
        receive_buffer_bytes: int = -1,
    ) -> None:
        self._on_messages = on_messages
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.ROUTING_ID, session_token)
        self._socket.setsockopt(zmq.RCVHWM, receive_queue)
        self._socket.setsockopt(zmq.RCVBUF, receive_buffer_bytes)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 50)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        self._socket.connect(address)
        self._session_id = session_id
        self._reader = SocketReader(self._socket, self._take)
        self.hello()

    def hello(self) -> None:
        """Send the hello (again): the session acknowledges it with PathAck."""
        self._socket.send(TO_WORKER.encode(DealerHello(self._session_id)), zmq.NOBLOCK)
        self._reader.drain()

    def pause(self, is_paused: bool = True) -> None:
        """Stop (or go on) reading this session's tokens; the worker then pauses its requests."""
        self._reader.pause(is_paused)

    def _take(self, frames: list[bytes]) -> None:
        messages: list[ToGateway] = []
        for frame in frames:
            try:
                messages.append(TO_GATEWAY.decode(frame))
            except (UnknownVersion, msgspec.DecodeError) as error:
                logger.error("dropped a malformed token frame: %s", error)
        if messages:
            self._on_messages(messages)

    def close(self) -> None:
        self._reader.close()
        self._socket.close()
