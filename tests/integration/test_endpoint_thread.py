"""Endpoints on threads of their own, called from another thread, over the real link."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from octavo.testing.connector_engine import Shape, Worker
from octavo.transfer.connector.registry import create_peer
from octavo.transfer.endpoint import Endpoint
from octavo.transfer.machine.noun import Incoming, Source
from octavo.transfer.runner import EndpointThread
from octavo.wire.bulk import PeerLink

NAMES = ("local", "shm", "tcp")


class Threaded:
    """A worker whose endpoint runs on a thread; its engine's answers are called back onto it."""

    def __init__(self, worker_id: str, name: str) -> None:
        self.worker = Worker(worker_id, Shape(), [create_peer(name)], PeerLink("127.0.0.1"), time.monotonic)
        self.errors: list[Exception] = []
        self.ended = threading.Event()
        self.worker.engine.on_commit = self.on_commit
        self.thread = EndpointThread(self.worker.endpoint, self.errors.append)

    def on_commit(self, transfer_id: str) -> None:
        self.worker.endpoint.committed(transfer_id)
        self.ended.set()

    def do_todo(self, endpoint: Endpoint) -> None:
        todo, self.worker.engine.todo = self.worker.engine.todo, []
        for act in todo:
            act()


def eventually(condition: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + 10
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.01)
    return condition()


@pytest.fixture(params=NAMES)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Threaded, Threaded]]:
    p, c = Threaded("p", request.param), Threaded("c", request.param)
    yield p, c
    for side in (p, c):
        side.thread.close()
        assert side.errors == []


def test_a_transfer_between_two_threads(pair: tuple[Threaded, Threaded]) -> None:
    p, c = pair
    name = next(iter(c.worker.connectors))
    pages: list = []
    p.thread.call(lambda _: pages.extend(p.worker.reserve("t", 100)))
    transfer = Incoming("t", ("r", 1), time.monotonic(), num_tokens=100)
    c.thread.call(lambda e: e.open(transfer, [Source("p", p.worker.terms.incarnation, name)], [p.worker.terms]))
    c.thread.call(lambda e: e.allocated("t", c.worker.allocate("t", 100)))
    p.thread.call(lambda e: e.fill("t", pages))
    p.thread.call(lambda e: e.finish("t", 100, b"token 0"))
    assert eventually(lambda: "t" in c.worker.engine.outcomes)
    c.thread.call(c.do_todo)
    assert c.ended.wait(10)
    assert c.worker.wrong_pages("t", 100) == []
    assert eventually(lambda: p.worker.engine.pool.num_free == p.worker.engine.pool.num_blocks)
    assert eventually(lambda: c.worker.endpoint.consumer.num_unacked_endings == 0)


def test_an_error_ends_the_thread_and_is_told(pair: tuple[Threaded, Threaded]) -> None:
    p, _ = pair

    def fail(endpoint: Endpoint) -> None:
        raise ValueError("broken on purpose")

    p.thread.call(fail)
    assert eventually(lambda: len(p.errors) == 1)
    assert str(p.errors.pop()) == "broken on purpose"
