import json
from collections.abc import AsyncIterator

import httpx
import pytest

from gateway_doubles import FakeCluster
from octavo.gateway.http.app import create_app

COMPLETION = {"model": "tiny", "prompt": "Hi", "max_tokens": 4}
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}


@pytest.fixture
async def http(tiny_files) -> AsyncIterator[httpx.AsyncClient]:
    async with FakeCluster(tiny_files, max_body_bytes=32_768, max_logprobs=5, max_n=4) as cluster:
        transport = httpx.ASGITransport(create_app(cluster.frontend), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway", trust_env=False) as client:
            yield client
        assert len(cluster.frontend.streams) == 0
        assert not cluster.links, "a bad request reached a worker"


COMPLETIONS = [
    ({"prompt": ""}, 400, "prompt"),
    ({"prompt": []}, 400, "prompt"),
    ({"prompt": None}, 400, "prompt"),
    ({"prompt": 5}, 400, "prompt"),
    ({"prompt": [1, "a"]}, 400, "prompt"),
    ({"prompt": [True]}, 400, "prompt"),
    ({"prompt": ["a", ""]}, 400, "prompt[1]"),
    ({"prompt": ["a"] * 300}, 400, "prompt"),
    ({"prompt": [999_999]}, 400, "prompt[0]"),
    ({"prompt": [1, -1]}, 400, "prompt[1]"),
    ({"prompt": [1] * 256}, 400, "prompt"),
    ({"prompt": "\ud800"}, 400, "body"),
    ({"max_tokens": 0}, 400, "max_tokens"),
    ({"max_tokens": -1}, 400, "max_tokens"),
    ({"max_tokens": "ten"}, 400, "max_tokens"),
    ({"max_tokens": 1000}, 400, "max_tokens"),
    ({"temperature": -0.1}, 400, "temperature"),
    ({"temperature": float("nan")}, 400, "temperature"),
    ({"temperature": float("inf")}, 400, "temperature"),
    ({"temperature": "hot"}, 400, "temperature"),
    ({"top_k": 1.5}, 400, "top_k"),
    ({"top_k": 10**30}, 400, "top_k"),
    ({"top_k": 2**31}, 400, "top_k"),
    ({"min_tokens": 10**30, "max_tokens": None}, 400, "min_tokens"),
    ({"max_tokens": 10**30}, 400, "max_tokens"),
    ({"temperature": 10**400}, 400, "temperature"),
    ({"seed": 10**30}, 400, "seed"),
    ({"priority": 2**31}, 400, "priority"),
    ({"stop_token_ids": [10**30]}, 400, "stop_token_ids"),
    ({"logit_bias": {str(10**30): 1}}, 400, "logit_bias"),
    ({"logit_bias": {"1": 10**400}}, 400, "logit_bias.1"),
    ({"stop_token_ids": [1] * 5000}, 400, "stop_token_ids"),
    ({"stop": ["x" * 9000]}, 400, "stop"),
    ({"top_p": 0}, 400, "top_p"),
    ({"top_p": 1.1}, 400, "top_p"),
    ({"min_p": 2}, 400, "min_p"),
    ({"n": 0}, 400, "n"),
    ({"n": 5}, 400, "n"),
    ({"logprobs": 6}, 400, "logprobs"),
    ({"logprobs": True}, 400, "logprobs"),
    ({"stop": ["x"] * 17}, 400, "stop"),
    ({"stop": [""]}, 400, "stop"),
    ({"stop": {"a": 1}}, 400, "stop"),
    ({"stop_token_ids": [-1]}, 400, "stop_token_ids"),
    ({"stop_token_ids": [999_999]}, 400, "stop_token_ids"),
    ({"logit_bias": {"999999": 5}}, 400, "logit_bias"),
    ({"logit_bias": {"x": 5}}, 400, "logit_bias"),
    ({"logit_bias": {"1": 101}}, 400, "logit_bias"),
    ({"repetition_penalty": 0}, 400, "repetition_penalty"),
    ({"repetition_penalty": 1e-300}, 400, "repetition_penalty"),
    ({"repetition_penalty": 1e39}, 400, "repetition_penalty"),
    ({"frequency_penalty": 3}, 400, "frequency_penalty"),
    ({"seed": -1}, 400, "seed"),
    ({"seed": 2**70}, 400, "seed"),
    ({"stream": "yes"}, 400, "stream"),
    ({"stream_options": {"include_usage": True}}, 400, "stream_options"),
    ({"priority": 2**40}, 400, "priority"),
    ({"echo": True}, 400, "echo"),
    ({"suffix": "x"}, 400, "suffix"),
    ({"best_of": 3}, 400, "best_of"),
    ({"guided_json": {}}, 400, "guided_json"),
    ({"model": "nobody"}, 404, "model"),
    ({"model": 5}, 400, "model"),
]


@pytest.mark.parametrize(("change", "status", "param"), COMPLETIONS)
async def test_completions(http: httpx.AsyncClient, change: dict, status: int, param: str):
    streamed = {} if "stream_options" in change else {"stream": True}
    for more in ({}, streamed):
        response = await http.post("/v1/completions", content=json.dumps({**COMPLETION, **more, **change}))
        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (status, param), error
        assert param.split("[")[0] in error["message"]
        assert set(error) == {"message", "type", "param", "code"}


CHATS = [
    ({"messages": []}, "messages"),
    ({"messages": "Hi"}, "messages"),
    ({"messages": ["Hi"]}, "messages[0]"),
    ({"messages": [{"content": "Hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages[0].content[0].type",
    ),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 6}, "top_logprobs"),
    ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_completion_tokens": -1}, "max_completion_tokens"),
    ({"max_completion_tokens": 10**30}, "max_completion_tokens"),
    ({"max_completion_tokens": 255}, "max_completion_tokens"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
    ({"messages": [{"role": "user", "content": "word " * 300}]}, "messages"),
]


@pytest.mark.parametrize(("change", "param"), CHATS)
async def test_chats(http: httpx.AsyncClient, change: dict, param: str):
    response = await http.post("/v1/chat/completions", json={**CHAT, **change})
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param), error


async def test_too_long_has_openais_code(http: httpx.AsyncClient):
    response = await http.post("/v1/completions", json={**COMPLETION, "prompt": [1] * 300})
    assert response.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "nothing"),
        (b"{", "malformed JSON"),
        (b'{"prompt": "\xff"}', "UTF-8"),
        (b"[1]", "an array"),
        (b"null", "null"),
        (b"[" * 2000 + b"]" * 2000, "nested"),
    ],
)
async def test_bodies(http: httpx.AsyncClient, content: bytes, said: str):
    response = await http.post("/v1/completions", content=content)
    assert response.status_code == 400
    assert said in response.json()["error"]["message"]


async def test_body_over_the_limit_is_413_whether_announced_or_chunked(http: httpx.AsyncClient):
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b" " * 4000

    for content in (b" " * 40_000, chunks()):
        response = await http.post("/v1/completions", content=content)
        assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")


async def test_unknown_path_and_method(http: httpx.AsyncClient):
    assert (await http.get("/nothing")).json()["error"]["code"] == "not_found"
    response = await http.get("/v1/completions")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert response.json()["error"]["code"] == "method_not_allowed"
    assert (await http.get("/v1/models/nobody")).json()["error"]["code"] == "model_not_found"


async def test_detokenize_out_of_vocabulary(http: httpx.AsyncClient):
    response = await http.post("/detokenize", json={"tokens": [1, 512]})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "tokens")
