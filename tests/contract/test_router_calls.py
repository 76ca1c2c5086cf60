"""Router and registry over gRPC, and load reports over ZMQ."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.error
import urllib.request
from collections.abc import AsyncIterator

import msgspec
import pytest

from octavo.config.command import RouterService
from octavo.config.service import RouterConfig
from octavo.errors import ModelNotFound, TooLong, Unavailable
from octavo.lifecycle import StopSignal
from octavo.obs.notify import Notifier
from octavo.router.main import serve
from octavo.rpc.placement import Fleet, PlaceRequest
from octavo.rpc.reflect import check_health, list_services
from octavo.rpc.router import RouterClient
from octavo.rpc.session_client import WorkerSession
from octavo.testing.sim import SimSpec
from octavo.testing.worker import sim_config, sim_worker
from session_kit import Listener, request


class Notices(Notifier):
    """Keeps the addresses that a service tells."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.addresses: dict[str, str] = {}
        self.is_ready = asyncio.Event()

    def listening(self, **addresses: str) -> None:
        self.addresses = addresses

    def ready(self) -> None:
        self.is_ready.set()


@contextlib.asynccontextmanager
async def router(port: int = 0) -> AsyncIterator[tuple[RouterClient, Notices]]:
    stop, notices = StopSignal(), Notices()
    config = RouterService(router=RouterConfig(router_port=port))
    task = asyncio.create_task(serve(config, '{"a": 1}', stop, notices))
    await asyncio.wait_for(notices.is_ready.wait(), 10)
    client = RouterClient(notices.addresses["grpc"])
    try:
        yield client, notices
    finally:
        await client.close()
        stop.set()
        assert await task == 0


def ask(**changes: object) -> PlaceRequest:
    base = PlaceRequest(request_id="r", attempt=1, gateway_incarnation="g", model="sim", num_prompt_tokens=5)
    return msgspec.structs.replace(base, **changes)


async def until_fleet(
    client: RouterClient, num_ready: int, timeout_s: float = 10.0, num_in_flight: int | None = None
) -> Fleet:
    async with asyncio.timeout(timeout_s):
        while True:
            fleet = await client.fleet()
            is_idle = num_in_flight in (None, sum(m.num_in_flight for m in fleet.members))
            if sum(m.is_ready for m in fleet.members) == num_ready and is_idle:
                return fleet
            await asyncio.sleep(0.05)


def http_get(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_a_worker_joins_and_leaves():
    async with router() as (client, notices):
        with pytest.raises(Unavailable) as caught:
            await client.place(ask())
        assert caught.value.retry_after_s > 0
        async with sim_worker(SimSpec(), sim_config(routers=(client.address,))) as worker:
            await until_fleet(client, 1)
            answer = await client.place(ask())
            assert answer.decode.worker == worker.front.record
            with pytest.raises(ModelNotFound, match="sim"):
                await client.place(ask(model="other"))
            with pytest.raises(TooLong) as long:
                await client.place(ask(num_prompt_tokens=10**6))
            assert long.value.param == "prompt"
            _, text = await asyncio.to_thread(http_get, notices.addresses["http"], "/metrics")
            assert "router_ready_workers 1.0" in text
            assert 'router_refusals_total{code="model_not_found"} 1.0' in text
        assert (await client.fleet()).members == ()
        assert (await client.info()).config_json == '{"a": 1}'


async def test_a_restarted_router_knows_the_fleet_after_one_period():
    async with contextlib.AsyncExitStack() as stack:
        async with router() as (client, notices):
            port = int(notices.addresses["grpc"].rsplit(":", 1)[1])
            await stack.enter_async_context(sim_worker(SimSpec(), sim_config(routers=(client.address,))))
            await until_fleet(client, 1)
        async with router(port) as (client, _):
            fleet = await until_fleet(client, 1, 3.0)
            assert fleet.age_s < 3.0


async def test_a_worker_registers_with_every_router_and_waits_for_none():
    async with router() as (first, _), router() as (second, _):
        addresses = (first.address, "127.0.0.1:9", second.address)
        async with sim_worker(SimSpec(), sim_config(routers=addresses)):
            await until_fleet(first, 1)
            await until_fleet(second, 1)


async def test_a_session_with_an_older_record_is_refused():
    async with sim_worker() as worker:
        assert worker.front.record is not None
        old = msgspec.structs.replace(worker.front.record, incarnation="before")
        with pytest.raises(Unavailable, match="restarted"):
            await WorkerSession.open(old, Listener(), "g", "g")


async def test_load_reports_end_what_is_in_flight():
    async with router() as (client, _), sim_worker(SimSpec(step_ms=5), sim_config(routers=(client.address,))):
        await until_fleet(client, 1)
        answer = await client.place(ask())
        listener = Listener()
        session = await WorkerSession.open(answer.decode.worker, listener, "g", "g")
        await session.submit(request("r", 100))
        assert (await client.fleet()).members[0].num_in_flight == 1
        await listener.until(lambda: listener.finish("r") == "length")
        await until_fleet(client, 1, 3.0, num_in_flight=0)
        await session.close()


async def test_worker_http():
    async with sim_worker() as worker:
        address = worker.front.http_address
        assert await asyncio.to_thread(http_get, address, "/health") == (200, "ok\n")
        assert await asyncio.to_thread(http_get, address, "/ready") == (200, "ok\n")
        status, text = await asyncio.to_thread(http_get, address, "/metrics")
        assert (status, "octavo:num_requests_running" in text) == (200, True)
        assert (await asyncio.to_thread(http_get, address, "/other"))[0] == 404
        worker.front.service.is_draining = True
        assert (await asyncio.to_thread(http_get, address, "/ready"))[0] == 503
        worker.front.service.is_draining = False


async def test_health_and_reflection():
    async with router() as (client, _):
        assert await check_health(client.address) is True
        names = await list_services(client.address)
        assert {"octavo.v1.Router", "octavo.v1.Registry", "grpc.health.v1.Health"} <= set(names)
