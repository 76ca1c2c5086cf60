"""The same request gives the same tokens and logprobs, bit for bit, on every path through one engine."""

import asyncio

import pytest

from octavo.llm import LLM, AsyncLLM, SamplingParams
from octavo.testing.tiny_model import write_tiny_model

NUM_OUT = 24
LENGTHS = (1, 5, 17, 33, 64, 100, 150, 40)
COMMON = {"max_tokens": NUM_OUT, "ignore_eos": True, "logprobs": 3}
GREEDY = SamplingParams(temperature=0, **COMMON)
SEEDED = SamplingParams(temperature=1.1, top_p=0.95, top_k=200, seed=2**63 + 12345, **COMMON)
PENALIZED = SEEDED.replace(repetition_penalty=1.3, frequency_penalty=0.4, min_p=0.01, temperature=0.8)
SETTINGS = {
    "greedy": GREEDY,
    "seeded": SEEDED,
    "penalized": PENALIZED,
    "greedy n=3": GREEDY.replace(n=3),
    "seeded n=3": SEEDED.replace(n=3),
}


def prompt(index):
    """Token ids that differ between prompts from the first one on."""
    return {"prompt_token_ids": [(31 * index + 7 * i + i * i) % 500 for i in range(LENGTHS[index])]}


PROMPTS = [prompt(i) for i in range(len(LENGTHS))]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def make_llm(request, tmp_path_factory):
    model = write_tiny_model(tmp_path_factory.mktemp("models") / "tiny")
    made = []

    def make(**flags):
        options = {"dtype": request.param, "block_size": 16, "num_gpu_blocks_override": 256, "threads": 1, **flags}
        made.append(LLM(str(model), **options))
        return made[-1]

    yield make
    for llm in made:
        llm.close()


def answers(outputs):
    """Everything of an answer that must not differ."""
    return [[(c.token_ids, c.text, c.logprobs, c.finish_reason) for c in output.outputs] for output in outputs]


def run(llm, prompts, params):
    return llm.generate(prompts, params, use_tqdm=False)


@pytest.fixture(scope="module")
def alone(make_llm):
    """Each request by itself on an engine without a prefix cache: what every other path must equal."""
    llm = make_llm(enable_prefix_caching=False, max_num_batched_tokens=512)
    return {name: [answers(run(llm, p, params))[0] for p in PROMPTS] for name, params in SETTINGS.items()}


def assert_idle(llm):
    llm.llm_engine.core.check_integrity()
    stats = llm.llm_engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, stats.num_blocks)


@pytest.mark.parametrize("chunk", [16, 64, 512])
def test_in_a_full_batch_for_every_chunk_size(make_llm, alone, chunk):
    llm = make_llm(max_num_batched_tokens=chunk)
    names = list(SETTINGS)
    outputs = run(llm, PROMPTS * len(names), [SETTINGS[name] for name in names for _ in PROMPTS])
    found = answers(outputs)
    for i, name in enumerate(names):
        assert found[i * len(PROMPTS) : (i + 1) * len(PROMPTS)] == alone[name], name
    assert_idle(llm)


@pytest.mark.parametrize("chunk", [16, 512])
@pytest.mark.parametrize("name", SETTINGS)
def test_with_prefix_hits(make_llm, alone, name, chunk):
    llm = make_llm(max_num_batched_tokens=chunk)
    cold = run(llm, PROMPTS, SETTINGS[name])
    warm = run(llm, PROMPTS, SETTINGS[name])
    assert [o.num_cached_tokens for o in cold] == [0] * len(PROMPTS)
    assert all(o.num_cached_tokens > 0 for o, length in zip(warm, LENGTHS, strict=True) if length > 16)
    assert answers(cold) == alone[name]
    assert answers(warm) == alone[name]
    assert_idle(llm)


@pytest.mark.parametrize("name", ["greedy", "seeded", "penalized"])
def test_sixteen_streams_on_a_pool_that_holds_two(make_llm, alone, name):
    longest = max(LENGTHS) + NUM_OUT
    llm = make_llm(num_gpu_blocks_override=2 * -(-longest // 16), max_num_seqs=16, max_num_batched_tokens=64)
    outputs = run(llm, PROMPTS * 2, SETTINGS[name])
    assert llm.llm_engine.stats().num_preemptions > 0
    assert answers(outputs) == alone[name] * 2
    assert_idle(llm)


def test_branches_under_preemption(make_llm, alone):
    longest = max(LENGTHS) + NUM_OUT
    llm = make_llm(num_gpu_blocks_override=2 * -(-longest // 16), max_num_seqs=16, max_num_batched_tokens=64)
    outputs = run(llm, PROMPTS * 2, SETTINGS["seeded n=3"])
    assert llm.llm_engine.stats().num_preemptions > 0
    assert answers(outputs) == alone["seeded n=3"] * 2
    assert_idle(llm)


def test_branches_of_a_seeded_request_differ_from_one_another(alone):
    for answer in alone["seeded n=3"]:
        assert len({tuple(token_ids) for token_ids, *_ in answer}) == 3


def test_as_streams(make_llm, alone):
    llm = make_llm()

    async def last(stream):
        async for output in stream:
            newest = output
        return newest

    async def collect():
        async with AsyncLLM(llm.llm_engine) as engine:
            return await asyncio.gather(*(last(engine.generate(p, SETTINGS["seeded n=3"])) for p in PROMPTS))

    assert answers(asyncio.run(collect())) == alone["seeded n=3"]
