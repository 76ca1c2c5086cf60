"""The gRPC SDK against a running cluster."""

import asyncio
import re

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from octavo.client import AsyncClient, Client
from octavo.errors import Aborted, InvalidInput, ModelNotFound, TooLong, Unavailable
from octavo.sampling_params import SamplingParams

pytestmark = pytest.mark.cluster
GREEDY = {"temperature": 0, "max_tokens": 12}
MESSAGES = [{"role": "user", "content": "Tell me of the sea."}]


@pytest.fixture(scope="module")
def client(tiny_cluster):
    with Client(tiny_cluster.grpc_address) as client:
        yield client


def test_generate_streamed_and_collected(client):
    chunks = list(client.stream("Once upon a time", **GREEDY))
    output = client.generate("Once upon a time", **GREEDY)
    assert "".join(chunk.text for chunk in chunks) == output.text
    assert output.usage.completion_tokens == len(output.token_ids) == 12
    assert (output.kv_path, output.finish_reason) == ("local", "length")


def test_same_tokens_and_logprobs_as_http(client, tiny_cluster):
    output = client.generate("Once upon a time", logprobs=2, **GREEDY)
    body = {"prompt": "Once upon a time", "model": "tiny", "logprobs": 2, "return_token_ids": True, **GREEDY}
    choice = httpx.post(tiny_cluster.base_url + "/v1/completions", json=body).json()["choices"][0]
    assert (choice["text"], choice["token_ids"]) == (output.text, output.token_ids)
    assert choice["logprobs"]["token_logprobs"] == [entry.logprob for entry in output.choices[0].logprobs]


def test_token_ids_and_params(client):
    params = SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True)
    output = client.generate([72, 105], params=params, echo_prompt_ids=True)
    assert (output.prompt_token_ids, len(output.token_ids)) == ([72, 105], 5)


def test_no_limit_means_up_to_the_context(client):
    params = SamplingParams(temperature=0.0, max_tokens=None, ignore_eos=True)
    limit = client.models()[0].max_model_len
    assert len(client.generate([72] * (limit - 9), params=params).token_ids) == 9


def test_choices(client):
    output = client.generate("Once", n=2, seed=5, max_tokens=8)
    assert [choice.index for choice in output.choices] == [0, 1]
    assert output.choices[0].token_ids != output.choices[1].token_ids


def test_chat_equals_http(client, tiny_cluster):
    body = {"messages": MESSAGES, "model": "tiny", **GREEDY}
    answer = httpx.post(tiny_cluster.base_url + "/v1/chat/completions", json=body).json()
    assert client.chat(MESSAGES, **GREEDY).text == answer["choices"][0]["message"]["content"]
    assert "".join(c.text for c in client.stream_chat(MESSAGES, **GREEDY)) == client.chat(MESSAGES, **GREEDY).text


def test_tokenize_and_back(client):
    text = "Grüße, 世界 😀"
    assert client.detokenize(client.tokenize(text)) == text


def test_status(client, tiny_cluster):
    assert client.models()[0].id == "tiny"
    assert (client.health().is_healthy, client.health().is_ready) == (True, True)
    info = client.server_info()
    assert set(info) == {"gateway", "cluster", "router", "workers"}
    assert info["workers"][0]["worker_id"] == "worker-0"


@pytest.mark.parametrize(
    ("prompt", "options", "error", "param"),
    [
        ("Hi", {"model": "nobody"}, ModelNotFound, "model"),
        ("", {}, InvalidInput, "prompt"),
        ([999_999], {}, InvalidInput, "prompt[0]"),
        ([-1], {}, InvalidInput, "prompt"),
        ("Hi", {"temperature": -1.0}, InvalidInput, "temperature"),
        ("Hi", {"temperature": float("nan")}, InvalidInput, "temperature"),
        ("Hi", {"max_tokens": 0}, InvalidInput, "max_tokens"),
        ("Hi", {"stop": ["x"] * 17}, InvalidInput, "stop"),
        ("Hi", {"top_k": "many"}, InvalidInput, "top_k"),
        ("Hi", {"surprise": 1}, InvalidInput, "surprise"),
        ([5] * 5000, {}, TooLong, "prompt"),
    ],
)
def test_typed_errors(client, prompt, options, error, param):
    with pytest.raises(error) as caught:
        client.generate(prompt, **options)
    assert caught.value.param == param


def test_every_service_counts_under_the_name_that_clients_use(client, tiny_cluster):
    client.generate("Once", **GREEDY)
    for address in (tiny_cluster.base_url, "http://" + tiny_cluster.workers[0].addresses["http"]):
        labels = re.findall(r'model_name="([^"]*)"', httpx.get(address + "/metrics").text)
        assert set(labels) == {client.models()[0].id}, address


@pytest.mark.parametrize("wrong", [None, 5, b"x"])
def test_a_prompt_of_another_type_is_refused(client, wrong):
    with pytest.raises(InvalidInput, match=r"prompt: got .* must be a text or token ids"):
        client.generate(wrong)
    with pytest.raises(InvalidInput, match=r"messages: got .* must be a list of messages"):
        client.chat(wrong)


def test_a_closed_client_says_so():
    client = Client("127.0.0.1:1")
    client.close()
    with pytest.raises(InvalidInput, match="client: it is closed"):
        client.models()
    with pytest.raises(InvalidInput, match="client: it is closed"):
        next(client.stream("x"))


def test_no_gateway_is_unavailable():
    with Client("127.0.0.1:1", call_timeout_s=2) as client, pytest.raises(Unavailable):
        client.generate("Hi")


async def test_abort_by_label(sim_cluster):
    async with AsyncClient(sim_cluster.grpc_address) as client:
        stream = client.stream([1, 2], request_id="mine", max_tokens=1000)
        await anext(stream)
        assert await client.abort("mine")
        with pytest.raises(Aborted):
            async for _ in stream:
                pass
        assert not await client.abort("mine")
    await asyncio.to_thread(sim_cluster.wait_idle)


async def test_leaving_a_stream_ends_the_request(sim_cluster):
    async with AsyncClient(sim_cluster.grpc_address) as client:
        stream = client.stream([1, 2, 3], max_tokens=1000)
        await anext(stream)
        await stream.aclose()
        await asyncio.to_thread(sim_cluster.wait_idle, 3.0)


def test_standard_health_and_reflection(tiny_cluster):
    with grpc.insecure_channel(tiny_cluster.grpc_address) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        (reply,) = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([ask]), timeout=5)
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    names = {service.name for service in reply.list_services_response.service}
    assert {"octavo.v1.Octavo", "grpc.health.v1.Health"} <= names
