"""Readers that stop: their own streams pause, others go on at full speed, and memory stays bounded."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import httpx
import psutil
import pytest

from octavo.client import AsyncClient
from octavo.rpc.convert_public import generate_to_pb
from octavo.rpc.public import GenerateCall
from octavo.testing.cluster import Cluster
from octavo.testing.sim import SimSpec, sim_token
from octavo.testing.tiny_model import write_tiny_model

pytestmark = pytest.mark.cluster

NUM_SLOW = 6
SPEC = SimSpec(step_ms=4, vocab_size=512, num_blocks=8192, max_model_len=4096)
BUFFER_BYTES = 64 * 1024
SLOW = {"max_tokens": 3500, "n": 4, "logprobs": 20}
"""Its answer is some hundred times larger than all buffers on the way."""
MIB = 1 << 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    model = write_tiny_model(tmp_path_factory.mktemp("long") / "tiny", max_position_embeddings=4096)
    flags = ["--max-stream-buffer-bytes", str(BUFFER_BYTES)]
    with Cluster(model, simulated=SPEC, gateway_flags=flags) as started:
        yield started


class Watch:
    """Counters and sizes of the cluster."""

    def __init__(self, cluster: Cluster, http: httpx.AsyncClient) -> None:
        self._cluster, self._http = cluster, http

    async def num_pauses(self) -> float:
        return _value((await self._http.get("/metrics")).text, "octavo:stream_pauses ")

    async def num_generated(self) -> float:
        address = self._cluster.workers[0].addresses["http"]
        page = (await self._http.get(f"http://{address}/metrics")).text
        return _value(page, "octavo:generation_tokens_total{")

    def memory(self) -> int:
        """Resident bytes of gateway, worker front and engine together."""
        front = psutil.Process(self._cluster.workers[0].pid)
        gateway = psutil.Process(self._cluster.services["gateway"].pid)
        return sum(process.memory_info().rss for process in (gateway, front, *front.children()))

    async def until_still(self) -> None:
        """Wait until the worker puts out nothing any more."""
        end_s = time.monotonic() + 40
        last = -1.0
        while last != (last := await self.num_generated()):
            assert time.monotonic() < end_s, "the worker goes on for readers that stopped"
            await asyncio.sleep(1.0)


def _value(page: str, start: str) -> float:
    return next(float(line.split()[-1]) for line in page.splitlines() if line.startswith(start))


@asynccontextmanager
async def slow_http(cluster: Cluster, index: int) -> AsyncIterator[None]:
    """A connection that asks and never reads."""
    host, _, port = cluster.base_url.removeprefix("http://").partition(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((host, int(port)))
    fields = {"model": "tiny", "prompt": [index], "stream": True, **SLOW}
    content = json.dumps(fields).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n"
    connection.sendall(head.encode() + content)
    yield
    connection.close()


@asynccontextmanager
async def slow_grpc(cluster: Cluster, index: int) -> AsyncIterator[None]:
    """A call that takes one chunk and then no more.

    Without probing, the client's HTTP/2 window stays at 64 KiB; else the library itself takes 4 MiB in.
    """
    call = GenerateCall(prompt=[index], params=SLOW)
    async with grpc.aio.insecure_channel(cluster.grpc_address, options=[("grpc.http2.bdp_probe", 0)]) as channel:
        stream = channel.unary_stream("/octavo.v1.Octavo/Generate")(generate_to_pb(call).SerializeToString())
        await stream.read()
        yield
        stream.cancel()


async def time_good_stream(cluster: Cluster) -> float:
    """Seconds that a stream of 300 tokens takes through gRPC; its tokens must be right."""
    async with AsyncClient(cluster.grpc_address) as client:
        start_s = time.perf_counter()
        ids = [i async for chunk in client.stream([9, 9], max_tokens=300) for i in chunk.token_ids]
        after_s = time.perf_counter() - start_s
    assert ids == [sim_token([9, 9], 0, index, SPEC.vocab_size) for index in range(300)]
    return after_s


@pytest.mark.parametrize("slow", [slow_http, slow_grpc])
async def test_only_the_streams_that_nobody_reads_stop(cluster: Cluster, slow: Callable[[Cluster, int], Any]):
    async with httpx.AsyncClient(base_url=cluster.base_url, timeout=30, trust_env=False) as http:
        watch = Watch(cluster, http)
        alone_s = min([await time_good_stream(cluster) for _ in range(2)])
        pauses, memory = await watch.num_pauses(), watch.memory()
        generated = await watch.num_generated()
        async with AsyncExitStack() as stack:
            for index in range(NUM_SLOW):
                await stack.enter_async_context(slow(cluster, index))
            await watch.until_still()
            assert await watch.num_pauses() - pauses >= NUM_SLOW
            share = (await watch.num_generated() - generated) / (NUM_SLOW * SLOW["n"] * SLOW["max_tokens"])
            assert share < 0.5, "the answers were too small to show anything"
            beside_s = min([await time_good_stream(cluster) for _ in range(2)])
            growth = watch.memory() - memory
            print(
                f"good stream {alone_s:.2f} s alone, {beside_s:.2f} s beside; {share:.3f} put out; {growth / MIB=:.1f}"
            )
            (status,) = await asyncio.to_thread(cluster.statuses)
            assert status.num_live_requests == NUM_SLOW
        assert beside_s < 2 * alone_s
        assert growth < 48 * MIB
        await asyncio.to_thread(cluster.wait_idle)
