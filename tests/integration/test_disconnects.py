"""Two hundred clients leave at random moments, through every door: everything they held comes back."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator

import httpx
import psutil
import pytest

from octavo.client import AsyncClient
from octavo.testing.cluster import Cluster

pytestmark = pytest.mark.cluster

NUM_CLIENTS = 200
LEAVE_WITHIN_S = 3.0
"""A client leaves at a random moment of this; no request would be through by then."""
SLACK = 2
SETTLE_S = 8.0


@pytest.fixture(scope="module")
def cluster(tiny_model) -> Iterator[Cluster]:
    """Few slots, small chunks and slow steps: at any moment clients queue, prefill and decode."""
    flags = ["--max-num-seqs=12", "--max-num-batched-tokens=64", "--num-gpu-blocks-override=256", "--block-size=16"]
    env = {"OCTAVO_FAULT": "engine.step:delay:4ms"}
    with Cluster(tiny_model, worker_flags=flags, worker_env=env) as started:
        yield started


class Client:
    """One client that leaves; `seen` says how far its request had come."""

    def __init__(self, index: int, rng: random.Random) -> None:
        self.kind = rng.choice(("sse", "sse", "http", "grpc", "raw", "raw"))
        self.leaves_after_s = rng.random() * LEAVE_WITHIN_S
        self.share_sent = rng.choice((0.3, 1.0, 1.0))
        self.prompt = [index % 500, *(rng.randrange(500) for _ in range(rng.choice((3, 40, 600))))]
        self.body = {
            "model": "tiny",
            "prompt": self.prompt,
            "max_tokens": 400,
            "ignore_eos": True,
            "n": rng.choice((1, 1, 2)),
            "stream": self.kind == "sse" or (self.kind == "raw" and rng.random() < 0.5),
        }
        self.num_events = 0
        self.is_through = False

    async def run(self, http: httpx.AsyncClient, grpc: AsyncClient, address: str) -> None:
        await asyncio.sleep(0.5 * self.leaves_after_s)
        work = asyncio.create_task(getattr(self, f"_{self.kind}")(http, grpc, address))
        await asyncio.sleep(0.5 * self.leaves_after_s)
        work.cancel()
        (result,) = await asyncio.gather(work, return_exceptions=True)
        assert isinstance(result, asyncio.CancelledError), f"{self.kind}: {result!r}"

    async def _sse(self, http: httpx.AsyncClient, grpc: AsyncClient, address: str) -> None:
        async with http.stream("POST", "/v1/completions", json=self.body) as response:
            assert response.status_code == 200
            async for line in response.aiter_lines():
                self.num_events += line.startswith("data: ")
        self.is_through = True
        await asyncio.Event().wait()

    async def _http(self, http: httpx.AsyncClient, grpc: AsyncClient, address: str) -> None:
        response = await http.post("/v1/completions", json=self.body)
        assert response.status_code == 200
        self.is_through = True
        await asyncio.Event().wait()

    async def _grpc(self, http: httpx.AsyncClient, grpc: AsyncClient, address: str) -> None:
        async for _ in grpc.stream(self.prompt, max_tokens=400, ignore_eos=True, n=self.body["n"]):
            self.num_events += 1
        self.is_through = True
        await asyncio.Event().wait()

    async def _raw(self, http: httpx.AsyncClient, grpc: AsyncClient, address: str) -> None:
        """A connection that is reset, in the middle of the request or of its answer."""
        host, _, port = address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            content = json.dumps(self.body).encode()
            head = f"POST /v1/completions HTTP/1.1\r\nhost: {address}\r\ncontent-length: {len(content)}\r\n\r\n"
            data = head.encode() + content
            writer.write(data[: int(self.share_sent * len(data))])
            while True:
                self.num_events += bool(await reader.read(1000))
                await asyncio.sleep(0.05)
        finally:
            # Zero linger: the kernel sends RST instead of FIN.
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            await asyncio.sleep(0)


def footprint(cluster: Cluster) -> dict[str, tuple[int, int]]:
    """Handles and threads of gateway, worker front and engine."""
    front = psutil.Process(cluster.workers[0].pid)
    (engine,) = front.children()
    processes = {"gateway": psutil.Process(cluster.services["gateway"].pid), "front": front, "engine": engine}
    processes["router"] = psutil.Process(cluster.services["router"].pid)
    return {name: (process.num_fds(), process.num_threads()) for name, process in processes.items()}


async def crowd(cluster: Cluster, clients: list[Client]) -> Counter[str]:
    """Run the clients; returns what the worker was doing meanwhile, by samples."""
    seen: Counter[str] = Counter()

    async def watch() -> None:
        while True:
            (status,) = await asyncio.to_thread(cluster.statuses)
            seen["waiting"] = max(seen["waiting"], status.num_waiting)
            seen["running"] = max(seen["running"], status.num_running)
            await asyncio.sleep(0.2)

    address = cluster.base_url.removeprefix("http://")
    limits = httpx.Limits(max_connections=500)
    async with (
        httpx.AsyncClient(base_url=cluster.base_url, timeout=60, limits=limits, trust_env=False) as http,
        AsyncClient(cluster.grpc_address) as grpc,
    ):
        watcher = asyncio.create_task(watch())
        await asyncio.gather(*(client.run(http, grpc, address) for client in clients))
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
        await asyncio.to_thread(cluster.wait_idle)
        assert (await http.get("/load")).json() == {"server_load": 0}
        page = (await http.get("/metrics")).text
        assert 'octavo:num_requests_running{model_name="tiny"} 0.0' in page
    return seen


async def settled(cluster: Cluster, base: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """The footprint once it is back at `base`, or after `SETTLE_S`."""
    end_s = time.monotonic() + SETTLE_S
    while True:
        now = await asyncio.to_thread(footprint, cluster)
        if not grown(base, now) or time.monotonic() > end_s:
            return now
        await asyncio.sleep(0.2)


def grown(base: dict[str, tuple[int, int]], now: dict[str, tuple[int, int]]) -> dict[str, list[tuple[int, int]]]:
    """What is further than `SLACK` from `base`."""
    return {
        name: [before, now[name]]
        for name, before in base.items()
        if any(abs(a - b) > SLACK for a, b in zip(before, now[name], strict=True))
    }


async def test_clients_that_leave_at_random_moments(cluster):
    rng = random.Random(2026)
    # Pools and threads that grow with the first load belong to the base line.
    await crowd(cluster, [Client(index, rng) for index in range(40)])
    base = await asyncio.to_thread(footprint, cluster)
    clients = [Client(index, rng) for index in range(NUM_CLIENTS)]
    start_s = time.monotonic()
    seen = await crowd(cluster, clients)
    # The clients must have left in all states, or the test shows little.
    kinds = Counter(client.kind for client in clients)
    begun = Counter(client.kind for client in clients if client.num_events and not client.is_through)
    print(f"{kinds=} {begun=} {seen=} in {time.monotonic() - start_s:.1f} s")
    assert seen["waiting"] > 0
    assert seen["running"] > 0
    assert 20 < begun.total() < NUM_CLIENTS - 20
    now = await settled(cluster, base)
    print(f"handles and threads before {base} and after {now}")
    assert not grown(base, now)
