"""What the gateway does when clients, workers and itself misbehave.  Simulated engines, real processes."""

import asyncio
import json
import signal
import socket
import time

import httpx
import pytest

from octavo.testing.cluster import Cluster
from octavo.testing.sim import SimSpec, sim_token

pytestmark = pytest.mark.cluster
SPEC = SimSpec(step_ms=5, vocab_size=512)


def body(prompt: list[int], max_tokens: int, **more: object) -> dict[str, object]:
    return {"model": "tiny", "prompt": prompt, "max_tokens": max_tokens, "return_token_ids": True, **more}


def expected(prompt: list[int], num_tokens: int, sequence: int = 0) -> list[int]:
    return [sim_token(prompt, sequence, index, SPEC.vocab_size) for index in range(num_tokens)]


async def stream_ids(http: httpx.AsyncClient, prompt: list[int], max_tokens: int) -> tuple[list[int], dict | None]:
    """Token ids of a streamed completion, and the error event if one came."""
    ids: list[int] = []
    async with http.stream("POST", "/v1/completions", json=body(prompt, max_tokens, stream=True)) as response:
        assert response.status_code == 200, await response.aread()
        async for line in response.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line[6:])
            if "error" in event:
                return ids, event["error"]
            ids += event["choices"][0]["token_ids"]
    return ids, None


def metric(text: str, stem: str) -> float:
    """An unlabelled metric of a /metrics page."""
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"octavo:{stem} "))


def client(cluster: Cluster) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=300, max_keepalive_connections=300)
    return httpx.AsyncClient(base_url=cluster.base_url, timeout=60, limits=limits, trust_env=False)


async def test_reader_that_stops_pauses_only_its_own_stream(tiny_model):
    spec = SimSpec(step_ms=0.2, vocab_size=512)
    flags = ["--max-stream-buffer-bytes", "4096"]
    with Cluster(tiny_model, simulated=spec, gateway_flags=flags) as cluster:
        host, port = cluster.base_url.removeprefix("http://").split(":")
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((host, int(port)))
        # Choices and logprobs make the answer larger than all buffers on the way.
        content = json.dumps(body([5], 1000, stream=True, n=4, logprobs=20)).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n"
        slow.sendall(head.encode() + content)
        async with client(cluster) as http:
            end_s = time.monotonic() + 30
            while metric((await http.get("/metrics")).text, "stream_pauses") == 0:
                assert time.monotonic() < end_s, "the stream was never paused"
                await asyncio.sleep(0.1)
            assert await stream_ids(http, [6, 7], 300) == (expected([6, 7], 300), None)
            (worker,) = await asyncio.to_thread(cluster.statuses)
            assert worker.num_live_requests == 1
        received = await asyncio.to_thread(_read_all, slow)
        slow.close()
        lines = [line for line in received.split("\n") if line.startswith("data: {")]
        ids: dict[int, list[int]] = {index: [] for index in range(4)}
        for line in lines:
            choice = json.loads(line[6:])["choices"][0]
            ids[choice["index"]] += choice["token_ids"]
        assert ids == {index: expected([5], 1000, index) for index in range(4)}
        await asyncio.to_thread(cluster.wait_idle)


def _read_all(connection: socket.socket) -> str:
    """The chunked answer's text, chunk sizes taken out."""
    connection.settimeout(30)
    data = b""
    while not data.endswith(b"0\r\n\r\n"):
        part = connection.recv(1 << 16)
        assert part, "the connection was closed early"
        data += part
    _, _, rest = data.partition(b"\r\n\r\n")
    out = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        out, rest = out + rest[:length], rest[length + 2 :]
    return out.decode()


@pytest.mark.parametrize(
    ("fault", "counter"),
    [("%3:drop", "resends"), ("#5-40:drop", "resends"), ("%2:double", "duplicates"), ("%4:reorder", "resends")],
)
async def test_mangled_token_frames_give_the_same_ids(tiny_model, fault, counter):
    with Cluster(tiny_model, simulated=SPEC, worker_env={"OCTAVO_FAULT": "worker.token_frame" + fault}) as cluster:
        async with client(cluster) as http:
            answers = await asyncio.gather(*(stream_ids(http, [index], 60) for index in range(4)))
            assert answers == [(expected([index], 60), None) for index in range(4)]
            assert metric((await http.get("/metrics")).text, f"stream_{counter}") > 0
        await asyncio.to_thread(cluster.wait_idle)


async def test_lost_worker_ends_its_streams_within_two_seconds_and_the_other_serves_on(tiny_model):
    with Cluster(tiny_model, simulated=SPEC, workers=2) as cluster:
        async with client(cluster) as http:
            tasks = [asyncio.create_task(stream_ids(http, [index], 600)) for index in range(4)]
            await asyncio.to_thread(cluster.wait_live, 4)
            await asyncio.to_thread(cluster.kill, "worker-0")
            start_s = time.monotonic()
            errors = []
            for done in asyncio.as_completed(tasks):
                _, error = await done
                if error is not None:
                    errors.append((error["code"], time.monotonic() - start_s))
            assert errors, "no stream ran on the worker that was killed"
            assert len(errors) < 4
            assert all(code == "upstream_lost" and after_s < 2 for code, after_s in errors), errors
            assert await stream_ids(http, [77], 10) == (expected([77], 10), None)
        await asyncio.to_thread(cluster.wait_idle)


async def test_killed_gateway_gives_blocks_back_within_its_lease(tiny_model):
    flags = ["--session-lease-s", "2"]
    with Cluster(tiny_model, simulated=SPEC, worker_flags=flags) as cluster:
        async with client(cluster) as http:
            tasks = [asyncio.create_task(stream_ids(http, [index], 1000)) for index in range(20)]
            await asyncio.to_thread(cluster.wait_live, 20)
            await asyncio.to_thread(cluster.kill, "gateway")
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, httpx.HTTPError) for result in results)
        await asyncio.to_thread(cluster.wait_idle, 4.0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_shutdown_lets_streams_end_and_exits_0(tiny_model, number):
    with Cluster(tiny_model, simulated=SPEC) as cluster:
        async with client(cluster) as http:
            tasks = [asyncio.create_task(stream_ids(http, [index], 200)) for index in range(8)]
            await asyncio.to_thread(cluster.wait_live, 8)
            code = await asyncio.to_thread(cluster.stop, "gateway", number)
            assert await asyncio.gather(*tasks) == [(expected([index], 200), None) for index in range(8)]
        assert code == 0


async def test_shutdown_ends_streams_that_take_too_long_with_an_error(tiny_model):
    with Cluster(tiny_model, simulated=SPEC, gateway_flags=["--shutdown-timeout-s", "0.5"]) as cluster:
        async with client(cluster) as http:
            task = asyncio.create_task(stream_ids(http, [1], 1000))
            await asyncio.to_thread(cluster.wait_live, 1)
            start_s = time.monotonic()
            code = await asyncio.to_thread(cluster.stop, "gateway")
            ids, error = await task
        assert (code, error["code"], ids) == (0, "unavailable", expected([1], len(ids)))
        assert time.monotonic() - start_s < 5
        await asyncio.to_thread(cluster.wait_idle)


async def test_router_that_dies_does_not_touch_running_streams(tiny_model):
    with Cluster(tiny_model, simulated=SPEC) as cluster:
        async with client(cluster) as http:
            task = asyncio.create_task(stream_ids(http, [1], 300))
            await asyncio.to_thread(cluster.wait_live, 1)
            await asyncio.to_thread(cluster.kill, "router")
            assert await task == (expected([1], 300), None)
            response = await http.post("/v1/completions", json=body([1], 4))
        assert (response.status_code, response.json()["error"]["code"]) == (503, "unavailable")
