"""One request through each front door (HTTP, gRPC, `LLM`), answered in one form that can be compared bit for bit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import httpx

from octavo.client import AsyncClient, Output
from octavo.llm import LLM, SamplingParams
from octavo.text.tokenizer import Tokenizer

Top = dict[str, float]


class Answer(NamedTuple):
    """One choice.  Logprobs are float32 values held exactly; `tops` maps token texts, as HTTP shows them."""

    token_ids: list[int]
    text: str
    finish_reason: str | None
    logprobs: list[float]
    tops: list[Top]


class Reply(NamedTuple):
    """All choices of one request, and how many prompt tokens came from the prefix cache."""

    answers: list[Answer]
    num_cached_tokens: int


def through_llm(llm: LLM, prompts: Sequence[list[int]], params: Mapping[str, Any]) -> list[Reply]:
    """In process, all prompts at once."""
    inputs = [{"prompt_token_ids": ids} for ids in prompts]
    outputs = llm.generate(inputs, SamplingParams(**params), use_tqdm=False)
    replies = []
    for output in outputs:
        output.raise_for_error()
        answers = []
        for choice in output.outputs:
            assert choice.logprobs is not None
            chosen = [entry[i].logprob for i, entry in zip(choice.token_ids, choice.logprobs, strict=True)]
            tops = [_top((e.decoded_token, e.logprob) for e in entry.values()) for entry in choice.logprobs]
            answers.append(Answer(choice.token_ids, choice.text, choice.finish_reason, chosen, tops))
        replies.append(Reply(answers, output.num_cached_tokens))
    return replies


async def through_http(
    http: httpx.AsyncClient, prompt: list[int], params: Mapping[str, Any], salt: str = "", stream: bool = False
) -> Reply:
    """`/v1/completions` with token ids."""
    body = {"model": "tiny", "prompt": prompt, "return_token_ids": True, "cache_salt": salt, **params}
    if not stream:
        response = await http.post("/v1/completions", json=body)
        assert response.status_code == 200, response.text
        return _reply([response.json()])
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    async with http.stream("POST", "/v1/completions", json=body) as response:
        assert response.status_code == 200, await response.aread()
        events = [line[6:] async for line in response.aiter_lines() if line.startswith("data: ")]
    assert events.pop() == "[DONE]"
    return _reply([json.loads(event) for event in events])


async def through_grpc(
    client: AsyncClient, tokenizer: Tokenizer, prompt: list[int], params: Mapping[str, Any], salt: str = ""
) -> Reply:
    """The SDK."""
    output: Output = await client.generate(prompt, cache_salt=salt, **params)
    answers = []
    for choice in output.choices:
        assert choice.logprobs is not None
        tops = []
        for token_id, entry in zip(choice.token_ids, choice.logprobs, strict=True):
            pairs = [(tokenizer.piece(i), v) for i, v in zip(entry.top_ids, entry.top_logprobs, strict=True)]
            tops.append(_top([*pairs, (tokenizer.piece(token_id), entry.logprob)]))
        chosen = [entry.logprob for entry in choice.logprobs]
        answers.append(Answer(choice.token_ids, choice.text, choice.finish_reason, chosen, tops))
    assert output.usage is not None
    return Reply(answers, output.usage.cached_tokens)


def _reply(bodies: list[dict[str, Any]]) -> Reply:
    """Join the bodies of an answer: one, or the chunks of a stream."""
    found: dict[int, Answer] = {}
    cached = None
    for body in bodies:
        assert "error" not in body, body
        if body.get("usage"):
            cached = body["usage"]["prompt_tokens_details"]["cached_tokens"]
        for choice in body["choices"]:
            old = found.get(choice["index"], Answer([], "", None, [], []))
            logprobs = choice["logprobs"] or {"token_logprobs": [], "top_logprobs": []}
            found[choice["index"]] = Answer(
                old.token_ids + choice["token_ids"],
                old.text + choice["text"],
                choice["finish_reason"],
                old.logprobs + logprobs["token_logprobs"],
                old.tops + logprobs["top_logprobs"],
            )
    assert cached is not None
    return Reply([found[index] for index in sorted(found)], cached)


def _top(pairs: Any) -> Top:
    """Text to logprob; of two ids with the same text, the more likely one, which comes first."""
    out: Top = {}
    for text, value in pairs:
        out.setdefault(text, value)
    return out
