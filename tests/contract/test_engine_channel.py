"""The pair between front and engine: nothing lost, and an engine that runs ahead waits."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.lifecycle import until
from octavo.wire.channel import EngineChannel, FrontChannel
from octavo.wire.message import FromEngine, PhaseNotice, Shutdown

NUM = 2000
PAD = "x" * 2000


class EngineSide(threading.Thread):
    """Sends numbered messages as fast as it may, then waits for one command."""

    def __init__(self, address: str, parent_fd: int) -> None:
        super().__init__(daemon=True)
        self._address, self._parent_fd = address, parent_fd
        self.num_sent = self.num_waits = 0
        self.commands: list[object] = []
        self.was_orphan = False

    def wait(self) -> None:
        self.num_waits += 1

    def run(self) -> None:
        channel = EngineChannel(self._address, self._parent_fd, self.wait)
        for number in range(NUM):
            channel.send(PhaseNotice(str(number), 0.0, 0.0, PAD))
            if channel.is_orphan:
                break
            self.num_sent += 1
        while not channel.is_orphan and not self.commands:
            self.commands += channel.receive(0.1)
        self.was_orphan = channel.is_orphan
        channel.close()


@pytest.fixture
def pipe() -> Iterator[list[int]]:
    """Read and write end; a test that closes an end takes it out."""
    ends = list(os.pipe())
    yield ends
    for fd in ends:
        os.close(fd)


async def test_an_engine_that_runs_ahead_waits_and_nothing_is_lost(tmp_path: Path, pipe: list[int]):
    got: list[str] = []

    def take(message: FromEngine) -> None:
        assert isinstance(message, PhaseNotice)
        got.append(message.name)

    front = FrontChannel(f"ipc://{tmp_path}/pair", take)
    front.pause()
    engine = EngineSide(f"ipc://{tmp_path}/pair", pipe[0])
    engine.start()
    assert await until(lambda: engine.num_waits >= 2, 10), "it never waited"
    assert engine.num_sent < NUM
    front.pause(False)
    assert await until(lambda: len(got) == NUM, 10)
    assert got == [str(n) for n in range(NUM)]
    front.send(Shutdown())
    await asyncio.to_thread(engine.join, 5)
    assert [type(c) for c in engine.commands] == [Shutdown]
    front.close()


async def test_an_engine_that_waits_for_a_front_that_is_gone_ends(tmp_path: Path, pipe: list[int]):
    front = FrontChannel(f"ipc://{tmp_path}/pair", lambda message: None)
    front.pause()
    engine = EngineSide(f"ipc://{tmp_path}/pair", pipe[0])
    engine.start()
    assert await until(lambda: engine.num_waits >= 1, 10)
    os.close(pipe.pop())
    await asyncio.to_thread(engine.join, 5)
    assert engine.was_orphan
    front.close()
