"""`SimWorker`: a real worker front in this process over a simulated engine process; sockets on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import msgspec

from octavo.config.command import WorkerService
from octavo.config.engine import ModelConfig
from octavo.config.service import FleetConfig, WorkerConfig
from octavo.lifecycle import StopSignal
from octavo.obs.notify import Notifier
from octavo.rpc.placement import WorkerStatus
from octavo.rpc.worker import WorkerClient
from octavo.testing.sim import BUILDER, SIM_ENV, SimSpec
from octavo.worker.engine_link import BUILDER_ENV
from octavo.worker.front import Front

START_TIMEOUT_S = 20.0
MODEL = "sim"


@dataclass
class SimWorker:
    """A running worker: its front, its status at readiness, a client of its calls, and what `serve` will return."""

    front: Front
    status: WorkerStatus
    client: WorkerClient
    stop: StopSignal
    result: asyncio.Task[int]


def sim_config(worker: WorkerConfig | None = None, routers: tuple[str, ...] = ()) -> WorkerService:
    """Settings of a worker that serves the model `sim`."""
    return WorkerService(
        worker=worker or WorkerConfig(), fleet=FleetConfig(router=routers), model=ModelConfig(model=MODEL)
    )


@contextlib.contextmanager
def sim_environment(spec: SimSpec) -> Iterator[None]:
    """Make engine processes started inside the block simulated ones."""
    before = {name: os.environ.get(name) for name in (BUILDER_ENV, SIM_ENV)}
    os.environ[BUILDER_ENV], os.environ[SIM_ENV] = BUILDER, msgspec.json.encode(spec).decode()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.asynccontextmanager
async def sim_worker(
    spec: SimSpec | None = None, config: WorkerService | None = None, info_json: str = "{}"
) -> AsyncIterator[SimWorker]:
    """Run a worker until the block ends; it is ready when the block begins."""
    stop = StopSignal()
    with sim_environment(spec or SimSpec()):
        front = Front(config or sim_config(), info_json, Notifier(-1))
        result = asyncio.create_task(front.serve(stop), name="worker")
        address = await _until_ready(front, result)
    client = WorkerClient(address)
    try:
        yield SimWorker(front, await client.status(), client, stop, result)
    finally:
        await client.close()
        stop.set()
        stop.set()
        await result


async def _until_ready(front: Front, result: asyncio.Task[int]) -> str:
    async with asyncio.timeout(START_TIMEOUT_S):
        while not front.is_joined:
            if result.done():
                raise RuntimeError(f"the worker ended with code {result.result()} before it was ready")
            await asyncio.sleep(0.02)
    return front.address
