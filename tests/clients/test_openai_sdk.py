"""The official openai client against a running cluster."""

from collections.abc import Iterator

import openai
import pytest

MESSAGES = [{"role": "user", "content": "Tell me of the sea."}]
GREEDY = {"model": "tiny", "temperature": 0, "max_tokens": 12}

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def client(tiny_cluster) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=tiny_cluster.base_url + "/v1", api_key="none", max_retries=0) as client:
        yield client


def test_models(client):
    (model,) = client.models.list().data
    assert model.id == client.models.retrieve("tiny").id == "tiny"


def test_completion(client):
    answer = client.completions.create(prompt="Once upon a time", **GREEDY)
    assert answer.choices[0].text
    assert answer.choices[0].finish_reason in ("length", "stop")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.system_fingerprint


def test_streamed_completion_is_the_same_text(client):
    whole = client.completions.create(prompt="Once upon a time", **GREEDY)
    *chunks, usage = client.completions.create(
        prompt="Once upon a time", stream=True, stream_options={"include_usage": True}, **GREEDY
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert usage.usage.completion_tokens == whole.usage.completion_tokens


def test_completion_of_token_ids_and_of_several_prompts(client):
    one = client.completions.create(prompt=[72, 105], **GREEDY)
    two = client.completions.create(prompt=[[72, 105], [72, 106]], **GREEDY)
    assert two.choices[0].text == one.choices[0].text
    assert [choice.index for choice in two.choices] == [0, 1]


def test_chat(client):
    answer = client.chat.completions.create(messages=MESSAGES, model="tiny", temperature=0, max_completion_tokens=12)
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage.completion_tokens <= 12


def test_streamed_chat_is_the_same_text(client):
    whole = client.chat.completions.create(messages=MESSAGES, **GREEDY)
    with client.chat.completions.create(messages=MESSAGES, stream=True, **GREEDY) as stream:
        chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == [
        whole.choices[0].finish_reason
    ]


def test_seeded_sampling_repeats(client):
    fields = {"prompt": "Once", "model": "tiny", "max_tokens": 16, "temperature": 1.0}
    first, second, other = (client.completions.create(seed=seed, **fields).choices[0].text for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_prefix_cache_is_told_in_usage(client):
    prompt = "The same long beginning of a prompt, over and over again. " * 4
    fields = {**GREEDY, "prompt": prompt}
    first, second = (client.completions.create(**fields) for _ in range(2))
    assert second.usage.prompt_tokens_details.cached_tokens > 0
    assert first.choices[0].text == second.choices[0].text


def test_chat_logprobs(client):
    choice = client.chat.completions.create(messages=MESSAGES, logprobs=True, top_logprobs=3, **GREEDY).choices[0]
    for entry in choice.logprobs.content:
        assert entry.logprob == max(top.logprob for top in entry.top_logprobs)
        assert len(entry.top_logprobs) == 3
    joined = b"".join(bytes(entry.bytes) for entry in choice.logprobs.content)
    assert joined.decode(errors="replace").startswith(choice.message.content)


def test_completion_logprobs(client):
    choice = client.completions.create(prompt="Once", logprobs=2, **GREEDY).choices[0]
    logprobs = choice.logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 12
    assert all(value <= 0 for value in logprobs.token_logprobs)


def test_two_choices(client):
    answer = client.chat.completions.create(
        messages=MESSAGES, model="tiny", n=2, temperature=1.0, seed=3, max_tokens=16
    )
    first, second = sorted(answer.choices, key=lambda choice: choice.index)
    assert (first.index, second.index) == (0, 1)
    assert first.message.content != second.message.content


def test_stop_string(client):
    text = client.completions.create(prompt="Once upon a time", **GREEDY).choices[0].text
    stop = text[3:5]
    cut = client.completions.create(prompt="Once upon a time", stop=[stop], **GREEDY).choices[0]
    assert cut.text == text[: text.index(stop)]
    assert cut.finish_reason == "stop"


def test_vllm_extras(client):
    extras = {"top_k": 5, "min_tokens": 4, "ignore_eos": True, "repetition_penalty": 1.1, "return_token_ids": True}
    answer = client.completions.create(prompt="Once", model="tiny", max_tokens=8, extra_body=extras)
    assert len(answer.choices[0].token_ids) == 8


@pytest.mark.parametrize(
    ("change", "error", "param"),
    [
        ({"model": "nobody"}, openai.NotFoundError, "model"),
        ({"temperature": -1}, openai.BadRequestError, "temperature"),
        ({"max_tokens": 0}, openai.BadRequestError, "max_tokens"),
        ({"prompt": "word " * 3000}, openai.BadRequestError, "prompt"),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_errors(client, change: dict, error: type, param: str, is_streamed: bool):
    with pytest.raises(error) as caught:
        client.completions.create(**{"prompt": "Hi", **GREEDY, "stream": is_streamed, **change})
    assert caught.value.param == param


async def test_async_client_with_streams_side_by_side(tiny_cluster):
    import asyncio

    async with openai.AsyncOpenAI(base_url=tiny_cluster.base_url + "/v1", api_key="none", max_retries=0) as client:

        async def one(index: int) -> str:
            stream = await client.completions.create(prompt=f"Number {index}", stream=True, **GREEDY)
            return "".join([chunk.choices[0].text async for chunk in stream])

        together = await asyncio.gather(*(one(index) for index in range(8)))
        alone = [await one(index) for index in range(8)]
    assert together == alone
