"""The demo model in bfloat16: real widths break batch invariance first.  Same bits alone, batched, in chunks."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from doors import Reply, through_grpc, through_http, through_llm
from octavo.client import AsyncClient
from octavo.hub.resolve import resolve_model
from octavo.llm import LLM
from octavo.testing.cluster import Cluster
from octavo.text.tokenizer import load_tokenizer

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

MODEL = "smollm2-135m"
BLOCK = 32
LENGTHS = (1, 17, 33, 60, 100, 150, 200, 40)
COMMON = {"max_tokens": 8, "ignore_eos": True, "logprobs": 3}
SETTINGS = [
    {**COMMON, "temperature": 0.0},
    {**COMMON, "temperature": 1.0, "seed": 7, "top_p": 0.9, "repetition_penalty": 1.2},
]
PROMPTS = [
    [(7919 * index + 104729 * i + i * i) % 49_000 for i in range(length)] for index, length in enumerate(LENGTHS)
]


def make_llm(chunk: int, has_cache: bool = True) -> LLM:
    return LLM(
        MODEL,
        dtype="bfloat16",
        block_size=BLOCK,
        max_num_batched_tokens=chunk,
        num_gpu_blocks_override=128,
        enable_prefix_caching=has_cache,
        threads=1,
    )


@pytest.fixture(scope="module")
def alone() -> list[list[Reply]]:
    """Setting → answers, each request by itself, its prefill in one chunk, without a prefix cache."""
    llm = make_llm(512, has_cache=False)
    found = [[through_llm(llm, [prompt], fields)[0] for prompt in PROMPTS] for fields in SETTINGS]
    llm.close()
    return found


def check(replies: list[Reply], expected: list[Reply], is_warm: bool) -> None:
    for index, (reply, wanted) in enumerate(zip(replies, expected, strict=True)):
        assert reply.answers == wanted.answers, index
        assert (reply.num_cached_tokens > 0) == (is_warm and LENGTHS[index] > BLOCK)


@pytest.mark.parametrize("chunk", [16, 512])
def test_in_process_in_a_batch_cold_and_with_prefix_hits(alone, chunk):
    llm = make_llm(chunk)
    check(through_llm(llm, PROMPTS, SETTINGS[0]), alone[0], is_warm=False)
    check(through_llm(llm, PROMPTS, SETTINGS[0]), alone[0], is_warm=True)
    check(through_llm(llm, PROMPTS, SETTINGS[1]), alone[1], is_warm=True)
    llm.close()


async def test_through_http_and_grpc_in_a_batch_cold_and_with_prefix_hits(alone):
    tokenizer = load_tokenizer(resolve_model(MODEL, need_weights=False))
    flags = ["--dtype=bfloat16", f"--block-size={BLOCK}", "--max-num-batched-tokens=64", "--threads=1"]
    with Cluster(MODEL, worker_flags=[*flags, "--num-gpu-blocks-override=256"]) as cluster:
        async with (
            httpx.AsyncClient(base_url=cluster.base_url, timeout=120, trust_env=False) as http,
            AsyncClient(cluster.grpc_address) as client,
        ):
            for setting, expected in zip(SETTINGS, alone, strict=True):
                for is_warm in (False, True):
                    over_http = [through_http(http, p, setting, f"http {setting}", stream=True) for p in PROMPTS]
                    over_grpc = [through_grpc(client, tokenizer, p, setting, f"grpc {setting}") for p in PROMPTS]
                    replies = await asyncio.gather(*over_http, *over_grpc)
                    check(replies[: len(PROMPTS)], expected, is_warm)
                    check(replies[len(PROMPTS) :], expected, is_warm)
        await asyncio.to_thread(cluster.wait_idle)
