"""The same request gives the same tokens and logprobs, bit for bit, through HTTP, gRPC and `LLM`."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from octavo.client import Client
from octavo.llm import LLM
from octavo.sampling_params import SamplingParams
from octavo.testing.cluster import Cluster
from octavo.testing.tiny_model import write_tiny_model

pytestmark = pytest.mark.cluster

NUM_OUT = 16
LENGTHS = (1, 17, 64, 130, 100, 40, 90, 120)
PROMPTS = [[(37 * i + 5 * j + i * j * j) % 500 for j in range(length)] for i, length in enumerate(LENGTHS)]
COMMON = {"max_tokens": NUM_OUT, "ignore_eos": True, "logprobs": 3}
SETTINGS = {
    "greedy": {"temperature": 0.0, **COMMON},
    "seeded": {"temperature": 1.1, "top_p": 0.95, "seed": 2**63 - 25, "repetition_penalty": 1.2, **COMMON},
}
LONGEST_BLOCKS = -(-(max(LENGTHS) + NUM_OUT) // 16)
PATHS = {
    "chunks of 16": ["--max-num-batched-tokens=16", "--num-gpu-blocks-override=256"],
    "chunks of 64, a pool that holds two": [
        "--max-num-batched-tokens=64",
        f"--num-gpu-blocks-override={2 * LONGEST_BLOCKS}",
        "--max-num-seqs=16",
    ],
    "chunks of 512": ["--max-num-batched-tokens=512", "--num-gpu-blocks-override=256"],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def alone(model):
    """(token ids, logprobs, likeliest logprobs) per setting and prompt, each request by itself in this process."""
    found = {}
    with LLM(str(model), block_size=16, num_gpu_blocks_override=256, threads=1, enable_prefix_caching=False) as llm:
        for name, settings in SETTINGS.items():
            outputs = [llm.generate(p, SamplingParams(**settings), use_tqdm=False)[0].outputs[0] for p in PROMPTS]
            found[name] = [
                (
                    o.token_ids,
                    [entry[t].logprob for entry, t in zip(o.logprobs, o.token_ids, strict=True)],
                    [sorted((x.logprob for x in entry.values() if x.rank <= 3), reverse=True) for entry in o.logprobs],
                )
                for o in outputs
            ]
    return found


@pytest.fixture(scope="module", params=PATHS)
def cluster(request, model):
    flags = ["--block-size=16", "--threads=1", *PATHS[request.param]]
    # Steps that last long enough for requests to meet, however fast the machine.
    with Cluster(model, worker_flags=flags, worker_env={"OCTAVO_FAULT": "engine.step:delay:5ms"}) as running:
        yield running


def through_http(cluster, prompt, settings):
    body = {"model": "tiny", "prompt": prompt, "return_token_ids": True, **settings}
    answer = httpx.post(cluster.base_url + "/v1/completions", json=body, timeout=60).json()
    choice = answer["choices"][0]
    top = [sorted(entry.values(), reverse=True)[:3] for entry in choice["logprobs"]["top_logprobs"]]
    cached = (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return (choice["token_ids"], choice["logprobs"]["token_logprobs"], top), cached


@pytest.mark.parametrize("name", SETTINGS)
def test_sixteen_http_streams_at_once_give_what_each_gives_alone(cluster, alone, name):
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda p: through_http(cluster, p, SETTINGS[name])[0], PROMPTS * 2))
    assert [f[:2] for f in found] == [a[:2] for a in alone[name]] * 2
    cluster.wait_idle()


@pytest.mark.parametrize("name", SETTINGS)
def test_prefix_hits_through_http(cluster, alone, name):
    for index in (3, 4):
        through_http(cluster, PROMPTS[index], SETTINGS[name])
        found, num_cached = through_http(cluster, PROMPTS[index], SETTINGS[name])
        assert num_cached > 0
        assert found[:2] == alone[name][index][:2]


@pytest.mark.parametrize("name", SETTINGS)
def test_sixteen_grpc_streams_at_once_give_what_each_gives_alone(cluster, alone, name):
    params = SamplingParams(**SETTINGS[name])
    with Client(cluster.grpc_address) as client, ThreadPoolExecutor(16) as pool:
        outputs = list(pool.map(lambda p: client.generate(p, params=params), PROMPTS * 2))
    found = [
        (o.token_ids, [e.logprob for e in o.choices[0].logprobs], [list(e.top_logprobs) for e in o.choices[0].logprobs])
        for o in outputs
    ]
    assert found == alone[name] * 2
    cluster.wait_idle()


def test_only_the_short_pool_had_to_preempt(cluster, request):
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda p: through_http(cluster, p, SETTINGS["greedy"]), PROMPTS * 2))
    is_short = "holds two" in request.node.callspec.params["cluster"]
    assert (sum(status.num_preemptions for status in cluster.statuses()) > 0) == is_short
