"""The in-service pair between a worker's front (asyncio) and its engine process (blocking), over a private ipc socket.

Queues are unbounded on purpose: nothing may be lost here, and the front bounds what the engine puts out by pausing
requests whose session cannot take tokens.
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


def _pair(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.PAIR)
    socket.set_hwm(0)
    socket.setsockopt(zmq.LINGER, 500)
    return socket


class FrontChannel:
    """The front's end: binds `address`, sends commands, hands messages to `on_message` on the running loop."""

    def __init__(self, address: str, on_message: Callable[[FromEngine], None]) -> None:
        self._on_message = on_message
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = _pair(self._context)
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

    def send(self, command: ToEngine) -> None:
        self._socket.send(TO_ENGINE.encode(command), zmq.NOBLOCK)
        asyncio.get_running_loop().call_soon(self._reader.drain)

    def close(self) -> None:
        self._reader.close()
        self._socket.close()
        self._context.term()


class EngineChannel:
    """The engine process's end: connects, sends, and takes commands with a blocking poll.

    `parent_fd` is the read end of a pipe whose write end only the front holds: when it closes, `is_orphan` turns true.
    """

    def __init__(self, address: str, parent_fd: int) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = _pair(self._context)
        self._socket.connect(address)
        self._parent_fd = parent_fd
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(parent_fd, zmq.POLLIN | zmq.POLLERR)
        self.is_orphan = False

    def send(self, message: FromEngine) -> None:
        self._socket.send(FROM_ENGINE.encode(message), zmq.NOBLOCK)

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
