"""Router, worker front and engine as processes: who dies with whom, and what readiness says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from octavo.errors import OctavoError
from octavo.kv.record import WorkerRecord
from octavo.lifecycle import until
from octavo.rpc.placement import WorkerStatus
from octavo.rpc.reflect import check_health
from octavo.rpc.router import RouterClient
from octavo.rpc.session_client import WorkerSession
from octavo.rpc.worker import WorkerClient
from octavo.testing.sim import BUILDER, SIM_ENV, SimSpec
from octavo.worker.engine_link import BUILDER_ENV
from session_kit import Listener, expected, request

LIMIT_S = 20.0


class Service:
    """One `octavo …` process and what it told its notify descriptor."""

    def __init__(self, log: Path, *argv: str, **env: str) -> None:
        read, write = os.pipe()
        os.set_blocking(read, False)
        self._read, self._text = read, b""
        self._log = log.open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "octavo.cli", *argv],
            env={**os.environ, "OCTAVO_NOTIFY_FD": str(write), **env},
            pass_fds=(write,),
            stderr=self._log,
            start_new_session=True,
        )
        os.close(write)

    @property
    def notices(self) -> list[dict[str, object]]:
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._read, 65536):
                self._text += chunk
        return [json.loads(line) for line in self._text.split(b"\n")[:-1]]

    def address(self, kind: str = "grpc") -> str:
        return next(str(n["addresses"][kind]) for n in self.notices if n["notice"] == "listening")  # type: ignore[index]

    def log(self) -> str:
        return Path(self._log.name).read_text()

    async def until_ready(self) -> None:
        def is_ready() -> bool:
            assert self.process.poll() is None, self.log()
            return any(n["notice"] == "ready" for n in self.notices)

        assert await until(is_ready, LIMIT_S), self.log()

    async def ended(self, timeout_s: float = LIMIT_S) -> int:
        """The exit code, once it ended."""
        assert await until(lambda: self.process.poll() is not None, timeout_s), "still runs"
        code = self.process.poll()
        assert code is not None
        return code

    def engine(self) -> psutil.Process:
        (child,) = psutil.Process(self.process.pid).children()
        return child

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(5)
        os.close(self._read)
        self._log.close()


class Cell:
    """A router and a worker."""

    def __init__(self, router: Service, worker: Service) -> None:
        self.router, self.worker = router, worker
        self.client = RouterClient(router.address())
        self.control = WorkerClient(worker.address())

    async def record(self) -> WorkerRecord:
        record = (await self.control.status()).record
        assert record is not None
        return record

    async def session(self, listener: Listener) -> WorkerSession:
        return await WorkerSession.open(await self.record(), listener, "g", "g-1")

    async def until_members(self, wanted: Callable[[list[bool]], bool], timeout_s: float = LIMIT_S) -> None:
        """Wait for the readiness of the fleet's members."""
        end_s = time.monotonic() + timeout_s
        while not wanted([m.is_ready for m in (await self.client.fleet()).members]):
            assert time.monotonic() < end_s, "the fleet did not become so"
            await asyncio.sleep(0.05)

    async def until_status(self, wanted: Callable[[WorkerStatus], bool], timeout_s: float = LIMIT_S) -> WorkerStatus:
        end_s = time.monotonic() + timeout_s
        while not wanted(status := await self.control.status()):
            assert time.monotonic() < end_s, f"the worker's status did not become so: {status}"
            await asyncio.sleep(0.02)
        return status


@pytest.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    spec = msgspec.json.encode(SimSpec(step_ms=10)).decode()
    router = Service(tmp_path / "router.log", "router")
    worker = None
    try:
        await router.until_ready()
        (tmp_path / "tmp").mkdir()
        env = {BUILDER_ENV: BUILDER, SIM_ENV: spec, "TMPDIR": str(tmp_path / "tmp")}
        argv = ("worker", "sim", "--router", router.address(), "--live-limit-s", "8", "--session-lease-s", "2")
        worker = Service(tmp_path / "worker.log", *argv, **env)
        await worker.until_ready()
        cell = Cell(router, worker)
        await cell.until_members(lambda ready: ready == [True])
        yield cell
        await cell.client.close()
        await cell.control.close()
    finally:
        for service in (worker, router):
            if service is not None:
                service.close()


async def test_a_killed_engine_ends_its_front(cell: Cell):
    listener = Listener()
    session = await cell.session(listener)
    await session.submit(request("r", 2000))
    await listener.until(lambda: len(listener.tokens("r")) > 2)
    cell.worker.engine().kill()
    assert await cell.worker.ended(5) == 1
    await listener.until(lambda: bool(listener.lost))
    await cell.until_members(lambda ready: ready == [], 10)
    await session.close()


async def test_a_killed_front_takes_its_engine_along(cell: Cell):
    engine = cell.worker.engine()
    cell.worker.process.kill()
    assert await until(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE, 3)


async def test_a_stopped_engine_loses_readiness_then_liveness(cell: Cell):
    listener = Listener()
    session = await cell.session(listener)
    os.kill(cell.worker.engine().pid, signal.SIGSTOP)
    start_s = time.monotonic()
    await cell.until_status(lambda status: not status.is_ready)
    fell_s = time.monotonic() - start_s
    assert 5.0 <= fell_s < 6.0, f"readiness fell after {fell_s:.2f} s"
    await cell.until_members(lambda ready: ready == [False], 2)
    await asyncio.sleep(0.3)
    assert await check_health(cell.worker.address()) is False
    probe = await cell.control.probe()
    assert probe.is_live is False
    with pytest.raises(OctavoError, match="not ready"):
        await session.submit(request("late"))
    await listener.until(lambda: bool(listener.lost), 7)
    assert await cell.worker.ended(10) == 1, "a front whose engine is stuck ends"
    await session.close()


async def test_readiness_comes_back_when_the_engine_goes_on(cell: Cell):
    listener = Listener()
    session = await cell.session(listener)
    await session.submit(request("r", 100))
    os.kill(cell.worker.engine().pid, signal.SIGSTOP)
    await cell.until_members(lambda ready: ready == [False], 8)
    os.kill(cell.worker.engine().pid, signal.SIGCONT)
    await cell.until_members(lambda ready: ready == [True], 3)
    await listener.until(lambda: listener.finish("r") == "length")
    assert listener.tokens("r") == expected(100)
    await session.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_to_the_group_drains(cell: Cell, number: int):
    listener = Listener()
    session = await cell.session(listener)
    await session.submit(request("r", 100))
    await listener.until(lambda: len(listener.tokens("r")) > 2)
    engine = cell.worker.engine()
    os.killpg(cell.worker.process.pid, number)
    await cell.until_members(lambda ready: ready == [], 3)
    await listener.until(lambda: listener.finish("r") == "length")
    assert listener.tokens("r") == expected(100)
    assert await cell.worker.ended(5) == 0
    assert not engine.is_running()
    await session.close()
    os.kill(cell.router.process.pid, number)
    assert await cell.router.ended(5) == 0


async def test_a_killed_gateway_frees_its_blocks_within_its_lease(cell: Cell):
    listener = Listener()
    session = await cell.session(listener)
    for number in range(5):
        await session.submit(request(f"r{number}", 3000))
    await listener.until(lambda: len(listener.tokens("r4")) > 1)
    await session.close()
    status = await cell.until_status(lambda status: status.num_free_blocks == status.num_blocks, 3.5)
    assert (status.num_live_requests, status.num_running) == (0, 0)


async def test_a_running_worker_has_no_files(cell: Cell, tmp_path: Path):
    assert list((tmp_path / "tmp").iterdir()) == []


async def test_an_idle_worker_does_not_spin(cell: Cell):
    processes = [psutil.Process(cell.worker.process.pid), cell.worker.engine()]

    def used_s() -> float:
        return sum(sum(p.cpu_times()[:2]) for p in processes)

    before_s = used_s()
    await asyncio.sleep(2)
    assert used_s() - before_s < 0.2


async def test_an_engine_that_raises_ends_with_a_fault(tmp_path: Path):
    env = {BUILDER_ENV: BUILDER, "OCTAVO_FAULT": "engine.step#3:raise"}
    worker = Service(tmp_path / "log", "worker", "sim", "--router", "127.0.0.1:9", **env)
    try:
        await worker.until_ready()
        control = WorkerClient(worker.address())
        record = (await control.status()).record
        assert record is not None
        listener = Listener()
        session = await WorkerSession.open(record, listener, "g", "g-1")
        await session.submit(request("r", 50))
        assert await worker.ended(5) == 1
        assert any(n["notice"] == "failed" and "engine.step" in str(n["message"]) for n in worker.notices)
        await session.close()
        await control.close()
    finally:
        worker.close()
