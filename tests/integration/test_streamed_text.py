"""Two hundred texts in many scripts through HTTP and gRPC: streamed equals unstreamed, with and without stop strings.

The engine is a simulated one that repeats its prompt, so that the tests know what the text must be.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from data.texts import TEXTS
from octavo.client import AsyncClient
from octavo.hub.resolve import resolve_model
from octavo.testing.cluster import Cluster
from octavo.testing.sim import SimSpec
from octavo.text.tokenizer import Tokenizer, load_tokenizer

pytestmark = pytest.mark.cluster
PARALLEL = 32
PRINTED = [text for text in TEXTS if text]
"""All but the empty text, which no prompt can be."""


class Text(NamedTuple):
    text: str
    finish_reason: str
    stop_reason: str | None


@pytest.fixture(scope="module")
def cluster(tiny_model) -> Iterator[Cluster]:
    with Cluster(tiny_model, simulated=SimSpec(step_ms=0.5, vocab_size=512, is_echo=True)) as started:
        yield started


@pytest.fixture(scope="module")
def tokenizer(tiny_model) -> Tokenizer:
    return load_tokenizer(resolve_model(str(tiny_model), need_weights=False))


@pytest.fixture
async def ask(cluster) -> Any:
    """`ask(door, ids, num_tokens, **fields)` → `Text`; doors: http, sse, grpc."""
    async with (
        httpx.AsyncClient(base_url=cluster.base_url, timeout=60, trust_env=False) as http,
        AsyncClient(cluster.grpc_address) as client,
    ):
        slots = asyncio.Semaphore(PARALLEL)

        async def one(door: str, ids: list[int], num_tokens: int, **fields: Any) -> Text:
            # Some texts hold special tokens.
            fields["skip_special_tokens"] = False
            async with slots:
                if door == "grpc":
                    output = await client.generate(ids, max_tokens=num_tokens, **fields)
                    return Text(output.text, output.finish_reason or "", output.choices[0].stop_reason)
                body = {"model": "tiny", "prompt": ids, "max_tokens": num_tokens, **fields}
                return await (_streamed if door == "sse" else _whole)(http, body)

        yield one


async def _whole(http: httpx.AsyncClient, body: dict[str, Any]) -> Text:
    response = await http.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    return Text(choice["text"], choice["finish_reason"], choice["stop_reason"])


async def _streamed(http: httpx.AsyncClient, body: dict[str, Any]) -> Text:
    text, ending = "", None
    async with http.stream("POST", "/v1/completions", json={**body, "stream": True}) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                assert ending is None, "an event after the ending"
                (choice,) = json.loads(line[6:])["choices"]
                text += choice["text"]
                if choice["finish_reason"]:
                    ending = (choice["finish_reason"], choice["stop_reason"])
    assert ending is not None
    return Text(text, *ending)


async def check_all(work: list[tuple[Callable[[str], Awaitable[Text]], Text]]) -> None:
    """Every case through every door."""
    for door in ("http", "sse", "grpc"):
        found = await asyncio.gather(*(ask_through(door) for ask_through, _ in work))
        wrong = [(got, wanted) for got, (_, wanted) in zip(found, work, strict=True) if got != wanted]
        assert wrong == [], f"{door}: {wrong[:3]}"


def through(ask: Any, ids: list[int], num_tokens: int, **fields: Any) -> Callable[[str], Awaitable[Text]]:
    return lambda door: ask(door, ids, num_tokens, **fields)


async def test_texts_come_out_whole(ask, tokenizer):
    prompts = [tokenizer.encode(text) for text in PRINTED]
    await check_all(
        [(through(ask, ids, len(ids)), Text(text, "length", None)) for ids, text in zip(prompts, PRINTED, strict=True)]
    )


async def test_a_character_that_the_limit_cuts_is_replaced(ask, tokenizer):
    work = []
    for text in ("Käse", "日本", "a😀b", "👩‍👩‍👧"):
        ids = tokenizer.encode(text)
        for num_tokens in range(1, len(ids)):
            data = b"".join(tokenizer.token_bytes(i) for i in ids[:num_tokens])
            work.append((through(ask, ids, num_tokens), Text(data.decode(errors="replace"), "length", None)))
    assert any("�" in wanted.text for _, wanted in work)
    await check_all(work)


def cut(text: str, stops: list[str], keeps: bool) -> Text:
    """What stop strings leave of a text: the first to complete wins, the longest of those that complete together."""
    for end in range(1, len(text) + 1):
        done = [stop for stop in stops if text[:end].endswith(stop)]
        if done:
            stop = max(done, key=len)
            return Text(text[:end] if keeps else text[: end - len(stop)], "stop", stop)
    return Text(text, "length", None)


@pytest.mark.parametrize("keeps", [False, True])
async def test_stop_strings_wherever_tokens_and_characters_are_cut(ask, tokenizer, keeps):
    rng = random.Random(11)
    work = []
    for text in PRINTED:
        ids = tokenizer.encode(text)
        stops = [_part(text, rng) for _ in range(rng.choice((1, 1, 2, 4)))]
        if rng.random() < 0.2:
            stops = ["\u2603 not there", _part(text, rng) + "\u2603"]
        fields = {"stop": stops, "include_stop_str_in_output": keeps}
        work.append((through(ask, ids, len(ids), **fields), cut(text, stops, keeps)))
    reasons = [wanted.finish_reason for _, wanted in work]
    assert min(reasons.count("stop"), reasons.count("length")) > 20
    assert sum(len((wanted.stop_reason or "").encode()) > len(wanted.stop_reason or "") for _, wanted in work) > 20
    await check_all(work)


def _part(text: str, rng: random.Random) -> str:
    start = rng.randrange(len(text))
    return text[start : start + rng.randint(1, 6)]


async def test_a_stop_string_ends_the_request_at_the_worker(cluster, ask, tokenizer):
    """The worker does not go on for the thousands of tokens that were allowed."""
    ids = tokenizer.encode("one 😀 two")
    (before,) = await asyncio.to_thread(cluster.statuses)
    assert await ask("sse", ids, 900, stop=["😀 t"]) == Text("one ", "stop", "😀 t")
    (after,) = await asyncio.to_thread(cluster.wait_idle, 0.3)
    assert before.num_blocks == after.num_free_blocks
