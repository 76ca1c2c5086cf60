"""A gateway's HTTP socket and clients that speak badly: heads without end, silence, no HTTP, and faults of ours."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from gateway_doubles import FakeCluster
from octavo.gateway.server import GatewayServer
from octavo.hub.files import ModelFiles
from octavo.testing.tiny_tokenizer import write_tiny_tokenizer

BODY = json.dumps({"model": "tiny", "prompt": "Hi", "max_tokens": 4}).encode()


@pytest.fixture
async def server(tmp_path) -> AsyncIterator[GatewayServer]:
    write_tiny_tokenizer(tmp_path)
    files = ModelFiles("tiny", "none", {"vocab_size": 512, "max_position_embeddings": 256}, (), tmp_path)
    async with FakeCluster(files, port=0, grpc_port=0, shutdown_timeout_s=1.0) as cluster:
        server = GatewayServer(cluster.frontend)
        await server.start()
        yield server
        await server.drain()


async def exchange(server: GatewayServer, *parts: bytes, timeout_s: float = 5.0) -> bytes:
    """All that the server sends until it closes the connection."""
    host, port = server.http_address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for part in parts:
            writer.write(part)
            await asyncio.wait_for(writer.drain(), timeout_s)
        return await asyncio.wait_for(reader.read(), timeout_s)
    except ConnectionError:
        return await asyncio.wait_for(reader.read(), timeout_s)
    finally:
        writer.close()


def post(body: bytes = BODY, headers: bytes = b"") -> bytes:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def error_of(answer: bytes) -> tuple[int, dict]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(headers=b"X-Long: " + b"a" * 100_000 + b"\r\n"),
        post(headers=b"".join(b"X-%d: 1\r\n" % i for i in range(20_000))),
        b"GET /health?" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["one long header", "many headers", "a long address"],
)
async def test_a_head_that_is_too_large_is_refused(server, request_bytes):
    status, error = error_of(await exchange(server, request_bytes))
    assert (status, error["code"]) == (431, "headers_too_large")
    assert (await exchange(server, post())).startswith(b"HTTP/1.1 200")


async def test_a_head_without_end_is_cut_off(server):
    parts = [b"GET /health HTTP/1.1\r\nX: "] + [b"a" * 65_536] * 20
    host, port = server.http_address.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    with pytest.raises(ConnectionError):
        for _ in range(500):
            for part in parts:
                writer.write(part)
                await asyncio.wait_for(writer.drain(), 5)
                await asyncio.sleep(0.001)
    writer.close()


@pytest.mark.parametrize(
    "junk", [b"\x16\x03\x01\x02\x00hello\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"{}\r\n\r\n"]
)
async def test_what_is_no_http_gets_an_error_body(server, junk):
    status, error = error_of(await exchange(server, junk))
    assert (status, error["code"]) == (400, "invalid_input")


@pytest.mark.parametrize("start", [b"", b"POST /v1/comp", post()[:-5]], ids=["nothing", "half a head", "half a body"])
async def test_a_client_that_goes_silent_in_its_turn_loses_its_connection(server, monkeypatch, start):
    monkeypatch.setattr(server._http.config, "timeout_keep_alive", 0.3)
    assert await exchange(server, start, timeout_s=5) == b""


async def test_an_answer_that_takes_longer_than_the_silence_allowed_is_not_cut(server, monkeypatch):
    monkeypatch.setattr(server._http.config, "timeout_keep_alive", 0.2)
    route = server.frontend.is_ready

    async def slow() -> bool:
        await asyncio.sleep(0.8)
        return await route()

    monkeypatch.setattr(server.frontend, "is_ready", slow)
    answer = await exchange(server, b"GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


async def test_a_fault_of_ours_is_logged_once_and_spares_the_connection(server, monkeypatch, caplog):
    def fail(*_: object) -> None:
        raise ValueError("a fault")

    monkeypatch.setattr(server.frontend, "models", fail)
    models = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    health = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = await exchange(server, models + health)
    first, _, second = answer.partition(b"HTTP/1.1 200")
    assert b"500" in first.splitlines()[0]
    assert b"internal error" in first
    assert second, "the next request of the connection got no answer"
    assert [r.exc_info is not None for r in caplog.records if r.levelname == "ERROR"] == [True]


async def test_another_method_is_refused_with_the_right_ones(server):
    answer = await exchange(server, b"GET /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    status, error = error_of(answer)
    assert (status, error["message"]) == (405, "method: got GET for /v1/completions; allowed: POST")
