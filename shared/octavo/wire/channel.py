"""The in-service pair between a worker's front (asyncio) and its engine process (blocking), over a private ipc socket.

Nothing is lost here.  Commands queue without bound, since the front must never block.  What the engine puts out is
bounded: an engine that is ahead of its front by `MAX_AHEAD` messages waits, so that a pause takes effect soon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec
import zmq

from octavo.wire.message import FROM_ENGINE, TO_ENGINE, FromEngine, ToEngine, UnknownVersion
from octavo.wire.reader import SocketReader

logger = logging.getLogger(__name__)


MAX_AHEAD = 32
WAIT_MS = 100


def _pair(context: zmq.Context[zmq.Socket[bytes]], send_queue: int, receive_queue: int) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.PAIR)
    socket.setsockopt(zmq.SNDHWM, send_queue)
    socket.setsockopt(zmq.RCVHWM, receive_queue)
    socket.setsockopt(zmq.LINGER, 500)
    return socket


class FrontChannel:
    """The front's end: binds `address`, sends commands, hands messages to `on_message` on the running loop."""

    def __init__(self, address: str, on_message: Callable[[FromEngine], None]) -> None:
        self._on_message = on_message
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = _pair(self._context, send_queue=0, receive_queue=MAX_AHEAD)
        self._socket.bind(address)
        self._reader = SocketReader(self._socket, self._take)

    def _take(self, frames: list[bytes]) -> None:
        for frame in frames:
            try:
                message = FROM_ENGINE.decode(frame)
            except (UnknownVersion, msgspec.DecodeError) as error:
                logger.error("dropped a malformed message of the engine: %s", error)
                continue
            self._on_message(message)

    def pause(self, is_paused: bool = True) -> None:
        """Stop, or go on, taking messages."""
        self._reader.pause(is_paused)

    def send(self, command: ToEngine) -> None:
        """Queue a command; never blocks."""
        self._socket.send(TO_ENGINE.encode(command), zmq.NOBLOCK)
        asyncio.get_running_loop().call_soon(self._reader.drain)

    def close(self) -> None:
        self._reader.close()
        self._socket.close()
        self._context.term()


class EngineChannel:
    """The engine process's end: connects, sends, and takes commands with a blocking poll.

    `parent_fd` is the read end of a pipe whose write end only the front holds: when it closes, `is_orphan` turns true.
    `on_wait` is called every `WAIT_MS` while `send` waits for the front: it beats the heart.
    """

    def __init__(self, address: str, parent_fd: int, on_wait: Callable[[], None] = lambda: None) -> None:
        self._on_wait = on_wait
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = _pair(self._context, send_queue=MAX_AHEAD, receive_queue=0)
        self._socket.connect(address)
        self._parent_fd = parent_fd
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(parent_fd, zmq.POLLIN | zmq.POLLERR)
        self._out_poller = zmq.Poller()
        self._out_poller.register(self._socket, zmq.POLLOUT)
        self._out_poller.register(parent_fd, zmq.POLLIN | zmq.POLLERR)
        self.is_orphan = False

    def send(self, message: FromEngine) -> None:
        """Queue a message; waits while the front is `MAX_AHEAD` messages behind, unless it is gone."""
        data = FROM_ENGINE.encode(message)
        while not self.is_orphan:
            try:
                self._socket.send(data, zmq.NOBLOCK)
                return
            except zmq.Again:
                self._on_wait()
                self.is_orphan = self._parent_fd in dict(self._out_poller.poll(WAIT_MS))

    def receive(self, timeout_s: float) -> list[ToEngine]:
        """All waiting commands; blocks up to `timeout_s` for the first.  Malformed ones are logged and skipped."""
        events = dict(self._poller.poll(int(timeout_s * 1000)))
        self.is_orphan = self.is_orphan or self._parent_fd in events
        commands: list[ToEngine] = []
        while self._socket in events:
            try:
                commands.append(TO_ENGINE.decode(self._socket.recv(zmq.NOBLOCK)))
            except zmq.Again:
                break
            except (UnknownVersion, msgspec.DecodeError) as error:
                logger.error("dropped a malformed command: %s", error)
        return commands

    def close(self) -> None:
        self._socket.close()
        self._context.term()
