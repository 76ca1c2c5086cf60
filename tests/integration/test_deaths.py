"""A process is killed or stopped while clients stream: what the clients see, and when the cluster is whole again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from octavo.client import AsyncClient
from octavo.errors import UpstreamLost
from octavo.testing.cluster import Cluster
from octavo.testing.sim import SimSpec, sim_token
from octavo.testing.tiny_model import write_tiny_model
from octavo.testing.up_cluster import UpCluster

pytestmark = pytest.mark.cluster

LEASE_S = 10.0
SLACK_S = 0.75
"""Beyond a limit: the worker looks every 0.25 s, the tests every 0.05 s, on a machine that does other things too."""


@pytest.fixture(scope="module")
def long_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose context lets a stream outlive a lease."""
    return write_tiny_model(tmp_path_factory.mktemp("long") / "tiny", max_position_embeddings=4096)


def http_client(base_url: str) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=300)
    return httpx.AsyncClient(base_url=base_url, timeout=120, limits=limits, trust_env=False)


def body(prompt: list[int], max_tokens: int, **more: object) -> dict[str, object]:
    fields = {"model": "tiny", "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0}
    return {**fields, "return_token_ids": True, **more}


class Stream:
    """A streamed completion: ids and error events as they come."""

    def __init__(self, http: httpx.AsyncClient, prompt: list[int], max_tokens: int) -> None:
        self.ids: list[int] = []
        self.errors: list[dict] = []
        self.is_done = False
        self.task = asyncio.create_task(self._read(http, body(prompt, max_tokens, stream=True)))

    async def _read(self, http: httpx.AsyncClient, fields: dict[str, object]) -> None:
        async with http.stream("POST", "/v1/completions", json=fields) as response:
            assert response.status_code == 200, await response.aread()
            async for line in response.aiter_lines():
                if line == "data: [DONE]":
                    self.is_done = True
                elif line.startswith("data: "):
                    event = json.loads(line[6:])
                    if "error" in event:
                        self.errors.append(event["error"])
                    else:
                        self.ids += event["choices"][0]["token_ids"]


async def until(is_so: Callable[[], bool], limit_s: float, what: str) -> float:
    """Wait for a condition; returns how long it took."""
    start_s = time.monotonic()
    while not is_so():
        assert time.monotonic() - start_s < limit_s, f"not within {limit_s:g} s: {what}"
        await asyncio.sleep(0.02)
    return time.monotonic() - start_s


async def is_ok(http: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(url)).status_code == 200
    except httpx.TransportError:
        return False


async def first_success(http: httpx.AsyncClient, limit_s: float) -> list[int]:
    """Ask until it works; every refusal on the way must be a typed 503."""
    end_s = time.monotonic() + limit_s
    while True:
        try:
            response = await http.post("/v1/completions", json=body([1, 2], 6))
        except httpx.TransportError:
            response = None
        if response is not None and response.status_code == 200:
            return response.json()["choices"][0]["token_ids"]
        if response is not None:
            assert response.status_code == 503, response.text
            assert response.json()["error"]["code"] in ("unavailable", "upstream_lost")
        assert time.monotonic() < end_s, "no request works again"
        await asyncio.sleep(0.1)


# --- gateway -------------------------------------------------------------------------------------------------------


async def test_blocks_of_a_killed_gateway_are_back_within_its_lease_and_another_serves_on(long_model):
    spec = SimSpec(step_ms=25, vocab_size=512, num_blocks=2048)
    with Cluster(long_model, simulated=spec) as cluster:
        other = cluster.start_gateway("gateway-2")
        other.wait_ready(30)
        async with http_client(cluster.base_url) as http, http_client("http://" + other.addresses["http"]) as http_2:
            lost = [Stream(http, [index], 3000) for index in range(20)]
            kept = Stream(http_2, [100], 700)
            await asyncio.to_thread(cluster.wait_live, 21)
            await asyncio.to_thread(cluster.kill, "gateway")
            killed_s = time.monotonic()
            results = await asyncio.gather(*(stream.task for stream in lost), return_exceptions=True)
            assert all(isinstance(result, httpx.HTTPError) for result in results)
            assert time.monotonic() - killed_s < 2, "clients did not hear of the death at once"

            def num_live() -> int:
                return cluster.statuses()[0].num_live_requests

            assert await asyncio.to_thread(num_live) == 21, "the streams must still run, else the lease is not tested"
            while await asyncio.to_thread(num_live) > 1:
                assert time.monotonic() - killed_s < LEASE_S + SLACK_S
                await asyncio.sleep(0.05)
            print(f"blocks back {time.monotonic() - killed_s:.2f} s after the gateway was killed")
            assert kept.ids, "the other gateway's stream"
            await kept.task
            assert kept.ids == [sim_token([100], 0, index, spec.vocab_size) for index in range(700)]
            (status,) = await asyncio.to_thread(cluster.wait_idle, 2.0)
            assert status.num_sessions == 1
            cluster.start_gateway("gateway-3").wait_ready(30)
            async with http_client("http://" + cluster.services["gateway-3"].addresses["http"]) as http_3:
                response = await http_3.post("/v1/completions", json=body([100], 10))
            assert response.json()["choices"][0]["token_ids"] == kept.ids[:10]


# --- engine --------------------------------------------------------------------------------------------------------


async def test_a_stopped_engine_loses_readiness_but_not_liveness_and_goes_on(long_model):
    """Readiness falls 5 to 6 s after SIGSTOP, at the worker and at the gateway; the stream only waits."""
    with Cluster(long_model, worker_env={"OCTAVO_FAULT": "engine.step:delay:20ms"}) as cluster:
        worker = cluster.workers[0]
        base = "http://" + worker.addresses["http"]
        (engine,) = psutil.Process(worker.pid).children()
        async with http_client(cluster.base_url) as http:
            whole = (await http.post("/v1/completions", json=body([5], 100))).json()["choices"][0]["token_ids"]
            stream = Stream(http, [5], 100)
            await until(lambda: len(stream.ids) > 5, 10, "the stream runs")
            engine.send_signal(signal.SIGSTOP)
            stopped_s = time.monotonic()
            fell_s: dict[str, float] = {}
            try:
                while len(fell_s) < 2:
                    for name, url in (("worker", base + "/ready"), ("gateway", "/ready")):
                        if name not in fell_s and not await is_ok(http, url):
                            fell_s[name] = time.monotonic() - stopped_s
                    assert time.monotonic() - stopped_s < 9, f"readiness fell only of {fell_s}"
                    await asyncio.sleep(0.02)
                print(f"readiness fell after {fell_s}")
                assert await is_ok(http, base + "/health"), "liveness of the worker"
                assert await is_ok(http, "/health"), "liveness of the gateway"
                start_s = time.monotonic()
                refused = await http.post("/v1/completions", json=body([5], 5))
                assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
                assert int(refused.headers["retry-after"]) >= 1
                assert time.monotonic() - start_s < 1
            finally:
                engine.send_signal(signal.SIGCONT)
            went_on_s = time.monotonic()
            while not (await is_ok(http, "/ready") and await is_ok(http, base + "/ready")):
                assert time.monotonic() - went_on_s < 3
                await asyncio.sleep(0.02)
            print(f"ready again {time.monotonic() - went_on_s:.2f} s after SIGCONT")
            await stream.task
            assert (stream.ids, stream.errors) == (whole, [])
            response = await http.post("/v1/completions", json=body([5], 100))
            assert response.json()["choices"][0]["token_ids"] == whole
        await asyncio.to_thread(cluster.wait_idle)
    for name, after_s in fell_s.items():
        assert 5.0 <= after_s < (6.25 if name == "gateway" else 6.0), fell_s


# --- services of `octavo up` ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def up(long_model: Path) -> Iterator[UpCluster]:
    """A cluster whose engine takes 10 ms more per step, so that streams last."""
    env = {"OCTAVO_FAULT": "engine.step:delay:10ms"}
    with UpCluster(long_model, "--served-model-name", "tiny", env=env) as cluster:
        yield cluster
        assert cluster.stop() == 0
        assert cluster.processes() == []


@pytest.mark.parametrize("victim", ["front", "engine"])
async def test_each_request_of_a_killed_worker_ends_with_one_error_and_the_next_works(up, victim):
    async with http_client(up.url) as http, AsyncClient(up.grpc) as client:
        expected = await first_success(http, 30)
        streams = [Stream(http, [index], 3000) for index in range(6)]
        unstreamed = asyncio.create_task(http.post("/v1/completions", json=body([50], 3000)))
        rpc = asyncio.create_task(client.generate([51], max_tokens=3000, ignore_eos=True))
        await until(lambda: all(len(stream.ids) > 3 for stream in streams), 20, "the streams run")
        await asyncio.sleep(0.3)
        [front] = up.processes("worker")
        (engine,) = front.children()
        (front if victim == "front" else engine).kill()
        killed_s = time.monotonic()
        await asyncio.wait_for(asyncio.gather(*(stream.task for stream in streams)), 10)
        response = await unstreamed
        (lost,) = await asyncio.gather(rpc, return_exceptions=True)
        after_s = time.monotonic() - killed_s
        print(f"all endings {after_s:.2f} s after the {victim} was killed")
        assert after_s < 2
        for stream in streams:
            assert [error["code"] for error in stream.errors] == ["upstream_lost"]
            assert stream.is_done
        assert (response.status_code, response.json()["error"]["code"]) == (503, "upstream_lost")
        assert isinstance(lost, UpstreamLost), lost
        assert await first_success(http, 40) == expected
        print(f"the next request worked {time.monotonic() - killed_s:.2f} s after the {victim} was killed")
    assert not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE


async def test_a_killed_router_harms_no_stream_and_new_requests_work_after_its_restart(up):
    async with http_client(up.url) as http:
        expected = await first_success(http, 40)
        streams = [Stream(http, [index], 400) for index in range(8)]
        await until(lambda: all(len(stream.ids) > 3 for stream in streams), 20, "the streams run")
        [router] = up.processes("router")
        os.kill(router.pid, signal.SIGKILL)
        killed_s = time.monotonic()
        assert await first_success(http, 30) == expected
        print(f"the next request worked {time.monotonic() - killed_s:.2f} s after the router was killed")
        assert not all(stream.task.done() for stream in streams), "the streams must outlive the router's death"
        await asyncio.gather(*(stream.task for stream in streams))
        assert all(len(stream.ids) == 400 and stream.is_done and not stream.errors for stream in streams)
        assert [process.pid for process in up.processes("router")] != [router.pid]
