import json
from collections.abc import AsyncIterator

import httpx
import pytest

from gateway_doubles import TEXT, FakeCluster
from octavo.errors import Busy, Unavailable
from octavo.gateway.http.app import create_app

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
COMPLETION = {"model": "tiny", "prompt": "Hi", "max_tokens": 8}


class Api:
    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        transport = httpx.ASGITransport(create_app(cluster.frontend), raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://gateway", trust_env=False)

    async def post(self, path: str, **body: object) -> httpx.Response:
        return await self.http.post(path, json=body)

    async def events(self, path: str, **body: object) -> list[dict]:
        response = await self.post(path, stream=True, **body)
        assert response.headers["content-type"].startswith("text/event-stream")
        *events, done = [line[6:] for line in response.text.split("\n\n") if line]
        assert done == "[DONE]"
        return [json.loads(event) for event in events]


@pytest.fixture
async def api(tiny_files) -> AsyncIterator[Api]:
    async with FakeCluster(tiny_files) as cluster:
        yield Api(cluster)
        assert len(cluster.frontend.streams) == 0


async def test_completion(api: Api):
    response = await api.post("/v1/completions", **COMPLETION)
    body = response.json()
    assert body["choices"] == [
        {"index": 0, "text": "Grüße,"[:8], "logprobs": None, "finish_reason": "length", "stop_reason": None}
    ]
    assert body["usage"]["completion_tokens"] == 8
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 16}
    assert body["system_fingerprint"] == "fp-1"
    assert (response.headers["x-octavo-kv-path"], response.headers["x-request-id"]) == ("local", body["id"])


@pytest.mark.parametrize(("num_prompt", "num_output"), [(255, 1), (250, 6), (100, 16)])
async def test_the_default_number_of_tokens_yields_to_the_context(api: Api, num_prompt: int, num_output: int):
    response = await api.post("/v1/completions", model="tiny", prompt=[5] * num_prompt)
    assert response.json()["usage"]["completion_tokens"] == num_output


async def test_chat_streamed_equals_unstreamed(api: Api):
    num_tokens = len(TEXT.encode())
    whole = (await api.post("/v1/chat/completions", **CHAT, max_completion_tokens=num_tokens)).json()
    events = await api.events("/v1/chat/completions", **CHAT, max_completion_tokens=num_tokens)
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(e["choices"][0]["delta"].get("content", "") for e in events)
    assert text == whole["choices"][0]["message"]["content"] == TEXT
    assert [e["choices"][0]["finish_reason"] for e in events][-1] == "length"


async def test_usage_chunk_comes_last_and_has_no_choices(api: Api):
    *events, usage = await api.events("/v1/chat/completions", **CHAT, stream_options={"include_usage": True})
    assert all(event["usage"] is None for event in events)
    assert (usage["choices"], usage["octavo"]) == ([], {"kv_path": "local"})
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + usage["usage"]["completion_tokens"]


async def test_stop_string_cuts_the_text_and_stops_the_worker(api: Api):
    body = (await api.post("/v1/completions", model="tiny", prompt="Hi", max_tokens=100, stop=["世"])).json()
    choice = body["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("Grüße, ", "stop", "世")
    assert len(api.cluster.link.aborted) == 1


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_n_choices(api: Api, is_streamed: bool):
    fields = {**COMPLETION, "prompt": ["a", "b"], "n": 2}
    if is_streamed:
        texts = dict.fromkeys(range(4), "")
        for event in await api.events("/v1/completions", **fields):
            texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
    else:
        body = (await api.post("/v1/completions", **fields)).json()
        texts = {choice["index"]: choice["text"] for choice in body["choices"]}
    assert texts == {0: "Grüße,", 1: "rüße, ", 2: "Grüße,", 3: "rüße, "}


async def test_completion_logprobs(api: Api):
    body = (await api.post("/v1/completions", model="tiny", prompt="Hi", max_tokens=2, logprobs=2)).json()
    logprobs = body["choices"][0]["logprobs"]
    assert (logprobs["tokens"], logprobs["token_logprobs"], logprobs["text_offset"]) == (
        ["G", "r"],
        [-0.25, -0.25],
        [0, 1],
    )
    assert logprobs["top_logprobs"][0] == {"G": -0.25, "H": -2.0}


async def test_chat_logprobs(api: Api):
    fields = {**CHAT, "max_tokens": 1, "logprobs": True, "top_logprobs": 1}
    (entry,) = (await api.post("/v1/chat/completions", **fields)).json()["choices"][0]["logprobs"]["content"]
    top = {"token": "G", "logprob": -0.25, "bytes": [71]}
    assert entry == {**top, "top_logprobs": [top]}


async def test_token_ids_are_returned_when_asked(api: Api):
    body = (await api.post("/v1/completions", **{**COMPLETION, "prompt": [1, 2]}, return_token_ids=True)).json()
    assert body["choices"][0]["prompt_token_ids"] == [1, 2]
    assert body["choices"][0]["token_ids"] == list(TEXT.encode())[:8]


async def test_sampling_fields_reach_the_worker(api: Api):
    extras = {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2, "min_tokens": 1, "ignore_eos": True, "seed": 7}
    await api.post("/v1/completions", **COMPLETION, **extras, logit_bias={"3": 1.5}, stop_token_ids=[9], priority=-2)
    request = api.cluster.link.submitted[0]
    assert {name: getattr(request.params, name) for name in extras} == extras
    assert (request.params.logit_bias, request.params.stop_token_ids, request.priority) == ({3: 1.5}, (9,), -2)


async def test_seed_is_drawn_when_none_is_given(api: Api):
    for _ in range(2):
        await api.post("/v1/completions", **COMPLETION)
    seeds = {request.params.seed for request in api.cluster.link.submitted}
    assert len(seeds - {None}) == 2


async def test_salt_parts_namespaces(api: Api):
    for salt in ("a", "b", None):
        await api.post("/v1/completions", **COMPLETION, cache_salt=salt)
    assert len({request.namespace for request in api.cluster.link.submitted}) == 3


async def test_client_request_id_is_kept(api: Api):
    response = await api.http.post("/v1/completions", json=COMPLETION, headers={"x-request-id": "mine-1"})
    assert response.headers["x-request-id"] == "mine-1"


async def test_busy_is_429_with_retry_after(api: Api):
    api.cluster.router.error = Busy("the queue is full", retry_after_s=2.2)
    response = await api.post("/v1/completions", **COMPLETION, stream=True)
    assert (response.status_code, response.headers["retry-after"]) == (429, "3")
    assert response.json()["error"]["type"] == "rate_limit_error"


async def test_no_worker_is_503_also_for_streams(api: Api):
    api.cluster.router.error = Unavailable("no worker serves tiny")
    response = await api.post("/v1/chat/completions", **CHAT, stream=True)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "unavailable")


async def test_lost_worker_mid_stream_is_an_error_event(api: Api):
    api.cluster.loses_after = 2
    events = await api.events("/v1/completions", **{**COMPLETION, "max_tokens": 100})
    assert "".join(e["choices"][0]["text"] for e in events[:-1]) == "Gr"
    assert events[-1]["error"]["code"] == "upstream_lost"


async def test_models_and_status_paths(api: Api):
    models = (await api.http.get("/v1/models")).json()
    assert [(m["id"], m["max_model_len"]) for m in models["data"]] == [("tiny", 256), ("alias", 256)]
    assert (await api.http.get("/v1/models/alias")).json()["id"] == "alias"
    for path in ("/health", "/ready", "/version", "/load", "/openapi.json"):
        assert (await api.http.get(path)).status_code == 200, path


async def test_not_ready_without_workers(api: Api):
    api.cluster.router.records = []
    await api.cluster.frontend.routers.refresh()
    response = await api.http.get("/ready")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "unavailable")
    assert (await api.http.get("/health")).status_code == 200


async def test_server_info_has_every_service(api: Api, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OCTAVO_UP_CONFIG", '{"workers": 1}')
    assert (await api.http.get("/server_info")).json() == {
        "gateway": {"port": 8000},
        "cluster": {"workers": 1},
        "router": {"routing_policy": "least_loaded"},
        "workers": [{"worker_id": "w0"}],
    }


async def test_metrics_count_a_request(api: Api):
    await api.post("/v1/completions", **COMPLETION)
    text = (await api.http.get("/metrics")).text
    assert 'octavo:request_success_total{finished_reason="length",model_name="tiny"} 1.0' in text
    assert 'octavo:generation_tokens_total{model_name="tiny"} 8.0' in text
    assert 'octavo:num_requests_running{model_name="tiny"} 0.0' in text
    assert 'octavo:time_to_first_token_seconds_count{model_name="tiny"} 1.0' in text


async def test_tokenize_and_back(api: Api):
    ids = (await api.post("/tokenize", model="tiny", prompt="Grüße 😀")).json()
    assert ids["count"] == len(ids["tokens"])
    assert (await api.post("/detokenize", tokens=ids["tokens"])).json() == {"prompt": "Grüße 😀"}
    assert (await api.post("/tokenize", messages=CHAT["messages"])).json()["count"] > 2


async def test_part_lists_are_texts(api: Api):
    await api.post("/v1/chat/completions", **CHAT, max_tokens=1)
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    await api.post("/v1/chat/completions", model="tiny", messages=parts, max_tokens=1)
    first, second = api.cluster.link.submitted
    assert first.prompt_token_ids == second.prompt_token_ids
