"""Transfers from another process: straight, stopped (SIGSTOP) and killed, over the real link and sockets."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from octavo.testing.connector_engine import Shape, Worker
from octavo.transfer.connector.registry import create_peer
from octavo.transfer.machine.noun import ConsumerState, Incoming, Reason, Source
from octavo.transfer.message import Terms
from octavo.transfer.runner import wait
from octavo.wire.bulk import PeerLink

NUM_TOKENS = 128
NUM_PAGES = 8
NAMES = ("shm", "tcp")


def num_mappings() -> int:
    """Pools that this process maps."""
    gc.collect()
    return Path("/proc/self/maps").read_text(encoding="utf-8").count("memfd:octavo-kv")


class Remote:
    """A producer process and, here, the consumer."""

    def __init__(self, name: str) -> None:
        command = [sys.executable, "-m", "octavo.testing.transfer_process", name, str(NUM_TOKENS)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        assert self.process.stdout is not None
        self.terms = msgspec.msgpack.decode(bytes.fromhex(self.process.stdout.readline()), type=Terms)
        self.c = Worker("c", Shape(), [create_peer(name)], PeerLink("127.0.0.1"), time.monotonic)
        transfer = Incoming("t", ("r", 1), time.monotonic(), num_tokens=NUM_TOKENS)
        source = Source("p", self.terms.incarnation, name)
        self.c.endpoint.open(transfer, [source], [self.terms])
        self.c.endpoint.allocated("t", self.c.allocate("t", NUM_TOKENS))

    def say(self, *lines: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()

    def run(self, until: Callable[[], bool], timeout_s: float = 20.0) -> float:
        """Seconds until `until()`."""
        start_s = time.monotonic()
        while not until():
            assert time.monotonic() < start_s + timeout_s, "it did not come"
            if not self.c.step():
                wait(self.c.endpoint)
        return time.monotonic() - start_s

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10)
        self.c.endpoint.close()


@pytest.fixture(params=NAMES)
def remote(request: pytest.FixtureRequest) -> Iterator[Remote]:
    remote = Remote(request.param)
    yield remote
    remote.close()


def test_pages_from_another_process(remote: Remote) -> None:
    remote.say("fill 3", f"fill {NUM_PAGES}", "finish")
    remote.run(lambda: "t" in remote.c.engine.outcomes)
    outcome = remote.c.engine.outcomes["t"]
    assert (outcome.kind, outcome.payload) == ("commit", b"token 0")
    assert remote.c.wrong_pages("t", NUM_TOKENS) == []
    remote.run(lambda: remote.c.endpoint.consumer.num_unacked_endings == 0)
    assert remote.c.endpoint.consumer.counters.num_pages == NUM_PAGES


def test_a_stopped_producer_is_left_within_two_seconds(remote: Remote) -> None:
    remote.say("fill 2")
    remote.run(lambda: remote.c.endpoint.consumer.counters.num_pages == 2)
    remote.process.send_signal(signal.SIGSTOP)
    took_s = remote.run(lambda: "t" in remote.c.engine.outcomes)
    outcome = remote.c.engine.outcomes["t"]
    assert (outcome.kind, outcome.reason, outcome.num_tokens) == ("give_up", Reason.TIMEOUT, 32)
    assert 1.4 < took_s < 5 * 2.0
    assert remote.c.engine.pool.num_free == remote.c.engine.pool.num_blocks


def test_a_killed_producer(remote: Remote) -> None:
    remote.say("fill 2")
    remote.run(lambda: remote.c.endpoint.consumer.counters.num_pages == 2)
    num_before = num_mappings()
    remote.process.kill()
    remote.process.wait(10)
    remote.c.endpoint.forget(remote.terms)
    remote.run(lambda: "t" in remote.c.engine.outcomes)
    outcome = remote.c.engine.outcomes["t"]
    assert (outcome.kind, outcome.reason, outcome.num_tokens) == ("give_up", Reason.PEER_GONE, 32)
    num_segments = len(remote.terms.shards) + 1 if "shm" in remote.c.connectors else 0
    assert num_before - num_mappings() == num_segments


def test_a_slow_producer_is_waited_for(remote: Remote) -> None:
    """It answers probes: no progress alone is no failure."""
    remote.run(lambda: remote.c.endpoint.consumer.counters.num_probes >= 2)
    assert remote.c.endpoint.consumer.ledger.get("t").state is ConsumerState.PULLING  # type: ignore[union-attr]
    remote.say(f"fill {NUM_PAGES}", "finish")
    remote.run(lambda: "t" in remote.c.engine.outcomes)
    assert remote.c.engine.outcomes["t"].kind == "commit"
