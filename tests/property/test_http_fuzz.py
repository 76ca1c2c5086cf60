"""Whatever JSON a client sends, the HTTP API answers with a success or with an OpenAI error of 4xx, never with 5xx."""

import asyncio
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gateway_doubles import FakeCluster
from octavo.gateway.http.app import create_app
from octavo.gateway.http.chat import ChatRequest
from octavo.gateway.http.completion import CompletionRequest
from octavo.gateway.http.field import NOT_BUILT
from octavo.gateway.http.token import DetokenizeRequest, TokenizeRequest
from octavo.hub.files import ModelFiles
from octavo.testing.tiny_tokenizer import write_tiny_tokenizer

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-3, 20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "system", "assistant"]) | VALUES},
        optional={"content": st.text(max_size=20) | VALUES, "name": VALUES, "tool_calls": VALUES},
    ),
    max_size=3,
)


def bodies(model: type, **likely: st.SearchStrategy) -> st.SearchStrategy[dict]:
    """Bodies with some of the model's fields and of the refused ones, mostly of any type; `likely` ones always."""
    names = [name for name in (*model.model_fields, *NOT_BUILT) if name not in likely]
    return st.fixed_dictionaries(likely, optional=dict.fromkeys(names, VALUES))


HELLO = [{"role": "user", "content": "Hello"}]
CASES = (
    st.tuples(st.just("/v1/completions"), bodies(CompletionRequest, prompt=st.just("Hi") | VALUES))
    | st.tuples(st.just("/v1/chat/completions"), bodies(ChatRequest, messages=MESSAGES | VALUES))
    | st.tuples(st.just("/tokenize"), bodies(TokenizeRequest))
    | st.tuples(st.just("/detokenize"), bodies(DetokenizeRequest))
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> ModelFiles:
    folder = Path(tmp_path_factory.mktemp("tiny"))
    write_tiny_tokenizer(folder)
    return ModelFiles("tiny", "none", {"vocab_size": 512, "max_position_embeddings": 256}, (), folder)


async def ask(files: ModelFiles, path: str, body: dict) -> httpx.Response:
    async with FakeCluster(files) as cluster:
        transport = httpx.ASGITransport(create_app(cluster.frontend), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway", trust_env=False) as http:
            response = await http.post(path, json=body)
        assert len(cluster.frontend.streams) == 0
        return response


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=CASES)
@example(case=("/v1/chat/completions", {"messages": HELLO, "chat_template_kwargs": {"self": 1, "": 2}}))
@example(case=("/v1/completions", {"prompt": "x", "logit_bias": {"٣": 1.0}}))
@example(case=("/tokenize", {"messages": HELLO, "chat_template_kwargs": {"self": 1}}))
def test_never_5xx(files: ModelFiles, case: tuple[str, dict]):
    path, body = case
    response = asyncio.run(ask(files, path, body))
    assert response.status_code < 500, response.text
    if response.status_code != 200:
        assert response.json()["error"]["message"]
