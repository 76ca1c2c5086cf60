"""A request gives the same tokens and logprobs, bit for bit, through HTTP, gRPC and `LLM`, whatever runs beside it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from doors import Reply, through_grpc, through_http, through_llm
from octavo.client import AsyncClient
from octavo.hub.resolve import resolve_model
from octavo.llm import LLM
from octavo.testing.cluster import Cluster
from octavo.text.tokenizer import Tokenizer, load_tokenizer

pytestmark = pytest.mark.cluster

BLOCK = 16
NUM_OUT = 16
LENGTHS = (1, 5, 17, 33, 64, 100, 150, 40)
COMMON = {"max_tokens": NUM_OUT, "ignore_eos": True, "logprobs": 3}
GREEDY = {**COMMON, "temperature": 0.0}
SEEDED = {**COMMON, "temperature": 1.0, "top_p": 0.95, "seed": 2**63 + 12345}
PENALIZED = {**SEEDED, "temperature": 0.8, "repetition_penalty": 1.3, "frequency_penalty": 0.4, "top_k": 200}
SETTINGS = {
    "greedy": GREEDY,
    "seeded": SEEDED,
    "penalized": PENALIZED,
    "greedy n=3": {**GREEDY, "n": 3},
    "seeded n=3": {**SEEDED, "n": 3},
}
SLOW_STEPS = {"OCTAVO_FAULT": "engine.step:delay:5ms"}
"""Requests sent together meet in a batch only if a step outlasts their sending, on a fast machine too."""
CHUNKS = [(16, "float32"), (64, "bfloat16"), (512, "float32")]
"""Every chunk size, and both dtypes that a CPU serves."""

PROMPTS = [[(31 * index + 7 * i + i * i) % 500 for i in range(length)] for index, length in enumerate(LENGTHS)]
"""Prompts that differ from their first token on, so that none finds another's prefix."""


class Doors:
    """The network doors of one cluster."""

    def __init__(self, cluster: Cluster, http: httpx.AsyncClient, client: AsyncClient, tokenizer: Tokenizer) -> None:
        self.cluster, self._http, self._client, self._tokenizer = cluster, http, client, tokenizer

    async def ask(self, door: str, index: int, name: str, salt: str = "") -> Reply:
        prompt, params = PROMPTS[index], SETTINGS[name]
        if door == "grpc":
            return await through_grpc(self._client, self._tokenizer, prompt, params, salt)
        return await through_http(self._http, prompt, params, salt, stream=door == "sse")

    async def worker_metric(self, stem: str) -> float:
        (worker,) = self.cluster.workers
        page = (await self._http.get(f"http://{worker.addresses['http']}/metrics")).text
        return next(float(line.split()[-1]) for line in page.splitlines() if line.startswith(f"octavo:{stem}{{"))


@contextlib.asynccontextmanager
async def doors_of(cluster: Cluster, model: Path | str) -> AsyncIterator[Doors]:
    limits = httpx.Limits(max_connections=300)
    tokenizer = load_tokenizer(resolve_model(str(model), need_weights=False))
    async with (
        httpx.AsyncClient(base_url=cluster.base_url, timeout=120, limits=limits, trust_env=False) as http,
        AsyncClient(cluster.grpc_address) as client,
    ):
        yield Doors(cluster, http, client, tokenizer)


def engine_flags(dtype: str, chunk: int, num_blocks: int = 1024) -> dict[str, object]:
    return {
        "dtype": dtype,
        "block_size": BLOCK,
        "num_gpu_blocks_override": num_blocks,
        "max_num_batched_tokens": chunk,
        "threads": 1,
    }


def as_line(flags: dict[str, object]) -> list[str]:
    return [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]


@pytest.fixture(scope="module")
def alone(tiny_model: Path) -> dict[str, dict[str, list[Reply]]]:
    """dtype → setting → answers of `LLM`, each request by itself, without a prefix cache, its prefill in one chunk."""
    found: dict[str, dict[str, list[Reply]]] = {}
    for dtype in ("float32", "bfloat16"):
        llm = LLM(str(tiny_model), enable_prefix_caching=False, **engine_flags(dtype, 512))
        found[dtype] = {name: [through_llm(llm, [p], fields)[0] for p in PROMPTS] for name, fields in SETTINGS.items()}
        llm.close()
    return found


@pytest.fixture(scope="module", params=CHUNKS, ids=[f"{chunk} {dtype}" for chunk, dtype in CHUNKS])
def served(request: pytest.FixtureRequest, tiny_model: Path, alone: dict) -> Iterator[tuple[Cluster, dict]]:
    """A cluster with one chunk size, and what its answers must be."""
    chunk, dtype = request.param
    with Cluster(tiny_model, worker_flags=as_line(engine_flags(dtype, chunk)), worker_env=SLOW_STEPS) as cluster:
        yield cluster, alone[dtype]


def test_the_references_are_worth_comparing(alone):
    """Settings give different tokens, dtypes different logprobs, choices of a seeded request different tokens."""
    float32, bfloat16 = alone["float32"], alone["bfloat16"]
    assert float32["greedy"][0].answers[0].logprobs != bfloat16["greedy"][0].answers[0].logprobs
    assert len({str(float32[name][6].answers[0].token_ids) for name in ("greedy", "seeded", "penalized")}) == 3
    for reply in float32["seeded n=3"]:
        assert len({tuple(answer.token_ids) for answer in reply.answers}) == 3


@pytest.mark.parametrize("door", ["http", "grpc"])
async def test_alone_cold_and_with_prefix_hits(served, tiny_model, door):
    cluster, expected = served
    async with doors_of(cluster, tiny_model) as doors:
        for name in SETTINGS:
            for index, length in enumerate(LENGTHS):
                # A salt of its own keeps the first try from the prefixes of other tests.
                salt = f"alone {door} {name}"
                cold, warm = [await doors.ask(door, index, name, salt) for _ in range(2)]
                assert cold.num_cached_tokens == 0
                assert (warm.num_cached_tokens > 0) == (length > BLOCK)
                assert cold.answers == expected[name][index].answers, (name, index)
                assert warm.answers == expected[name][index].answers, (name, index)


async def test_in_a_full_batch_of_mixed_requests(served, tiny_model):
    cluster, expected = served
    work = [(door, index, name) for name in SETTINGS for index in range(len(PROMPTS)) for door in ("sse", "grpc")]
    async with doors_of(cluster, tiny_model) as doors:
        tokens, steps = (
            await doors.worker_metric("generation_tokens_total"),
            await doors.worker_metric("engine_steps_total"),
        )
        replies = await asyncio.gather(*(doors.ask(*one, salt="batch") for one in work))
        tokens = await doors.worker_metric("generation_tokens_total") - tokens
        steps = await doors.worker_metric("engine_steps_total") - steps
    for (door, index, name), reply in zip(work, replies, strict=True):
        assert reply.answers == expected[name][index].answers, (door, name, index)
    assert tokens / steps > 4, "the requests did not run side by side"
    await asyncio.to_thread(cluster.wait_idle)


@pytest.mark.parametrize("name", ["greedy", "penalized", "seeded n=3"])
async def test_sixteen_streams_on_a_pool_that_holds_two(scarce, tiny_model, alone, name):
    work = [(("sse", "grpc")[i % 2], i % len(PROMPTS)) for i in range(16)]
    before = (await asyncio.to_thread(scarce.statuses))[0].num_preemptions
    async with doors_of(scarce, tiny_model) as doors:
        replies = await asyncio.gather(*(doors.ask(door, index, name) for door, index in work))
    (status,) = await asyncio.to_thread(scarce.wait_idle)
    assert status.num_preemptions > before
    for (door, index), reply in zip(work, replies, strict=True):
        assert reply.answers == alone["float32"][name][index].answers, (door, index)


@pytest.fixture(scope="module")
def scarce(tiny_model: Path) -> Iterator[Cluster]:
    """A cluster whose pool holds two sequences of the longest request."""
    num_blocks = 2 * -(-(max(LENGTHS) + NUM_OUT) // BLOCK)
    flags = as_line(engine_flags("float32", 64, num_blocks))
    with Cluster(tiny_model, worker_flags=flags, worker_env=SLOW_STEPS) as cluster:
        yield cluster
