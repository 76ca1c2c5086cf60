"""`SocketReader`: hands a ZMQ socket's frames to an asyncio loop in batches, without a thread and without polling.

ZMQ's descriptor is edge-triggered: after it fires, and after any other use of the socket, all waiting frames must be
taken.  Frames are therefore drained up to a limit per wake-up, with a new wake-up scheduled when more may be left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import zmq

MAX_BATCH = 256


class SocketReader:
    """Calls `on_frames(frames)` on the loop with each batch of single-part messages of `socket`."""

    def __init__(self, socket: zmq.Socket[bytes], on_frames: Callable[[list[bytes]], None]) -> None:
        self._socket = socket
        self._on_frames = on_frames
        self._loop = asyncio.get_running_loop()
        self._fd = int(socket.getsockopt(zmq.FD))
        self._is_open = True
        self._is_paused = False
        self._loop.add_reader(self._fd, self.drain)
        self._loop.call_soon(self.drain)

    def drain(self) -> None:
        """Take what is there.  Call it after any other use of the socket."""
        if not self._is_open or self._is_paused:
            return
        frames: list[bytes] = []
        while len(frames) < MAX_BATCH:
            try:
                frames.append(self._socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                break
        else:
            self._loop.call_soon(self.drain)
        if frames:
            self._on_frames(frames)

    def pause(self, is_paused: bool = True) -> None:
        """Stop taking frames: the sender's queue fills and it pauses this session.  False goes on."""
        if self._is_paused == is_paused or not self._is_open:
            return
        self._is_paused = is_paused
        if is_paused:
            self._loop.remove_reader(self._fd)
        else:
            self._loop.add_reader(self._fd, self.drain)
            self._loop.call_soon(self.drain)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._fd)
