"""`build_engine`: refusals come before weights are read; the record says what was built."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from pathlib import Path

import pytest

from octavo.config.engine import CacheConfig, DeviceConfig, EngineConfig, ModelConfig, ParallelConfig
from octavo.engine.build import build_engine
from octavo.engine.core import EngineCore
from octavo.errors import InvalidInput
from octavo.hub.files import ModelFiles
from octavo.request import Request, SequenceInput
from octavo.sampling_params import SamplingParams
from octavo.testing.tiny_model import tiny_config

NUMBERS = itertools.count()
CONFIG = EngineConfig(
    model=ModelConfig(model="tiny", dtype="float32", load_format="dummy"),
    cache=CacheConfig(block_size=16, num_gpu_blocks_override=64),
    device=DeviceConfig(device="cpu", threads=1),
)


def files(**overrides: object) -> ModelFiles:
    return ModelFiles("tiny", "none", tiny_config(**overrides), (), None, content_id="c", eos_token_ids=(1,))


def tokens_of(core: EngineCore, prompts: list[list[int]], num_tokens: int = 6) -> list[list[int]]:
    params = SamplingParams(temperature=0.0, seed=0, max_tokens=num_tokens, ignore_eos=True)
    ids = [str(next(NUMBERS)) for _ in prompts]
    for request_id, prompt in zip(ids, prompts, strict=True):
        core.add_request(Request(request_id, 1, prompt, params, [SequenceInput(0)]))
    out: dict[str, list[int]] = {}
    while core.has_unfinished_requests():
        for emission in core.step():
            assert emission.error is None, emission.error
            out.setdefault(emission.request_id, []).extend(emission.token_ids)
    return [out[request_id] for request_id in ids]


def test_an_engine_runs_requests_together_as_alone() -> None:
    prompts = [[5, 6, 7], list(range(2, 80)), [9] * 33]
    core, record = build_engine(CONFIG, files())
    alone = [tokens_of(core, [prompt])[0] for prompt in prompts]
    assert tokens_of(core, prompts) == alone
    core.check_integrity()
    assert record.num_blocks == 64
    assert record.layout.block_size == 16
    assert record.is_deterministic
    assert record.max_sequence_tokens == 1024


def test_a_model_with_two_groups_runs() -> None:
    mixed = files(family="qwen2", use_sliding_window=True, sliding_window=32, max_window_layers=1)
    core, record = build_engine(CONFIG, mixed)
    assert [group.kind for group in record.layout.groups] == ["full", "sliding"]
    assert record.max_sequence_tokens == 32 * 16
    prompts = [list(range(2, 80)), [9] * 50]
    assert tokens_of(core, prompts) == [tokens_of(core, [prompt])[0] for prompt in prompts]
    core.check_integrity()


def test_parallel_sizes_are_refused_with_the_reason() -> None:
    with pytest.raises(InvalidInput, match="tensor_parallel_size: got 2; must be 1: layers cannot be split"):
        build_engine(replace(CONFIG, parallel=ParallelConfig(tensor_parallel_size=2)), files())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (replace(CONFIG, cache=CacheConfig(block_size=24)), "block_size: got 24; must be one of"),
        (replace(CONFIG, cache=CacheConfig(kv_cache_dtype="float16")), "KV dtype torch.float16 is not one of"),
        (replace(CONFIG, model=ModelConfig(dtype="int8")), "dtype: got 'int8'; must be auto or one of"),
        (replace(CONFIG, device=DeviceConfig(attention_backend="flash")), "there are: auto, .*torch_cpu, reference"),
    ],
    ids=["block-size", "kv-dtype", "dtype", "backend"],
)
def test_bad_settings_are_refused_at_once(config: EngineConfig, message: str, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(InvalidInput, match=message):
        build_engine(config, replace(files(), format="safetensors", weights=(tmp_path / "not-there.safetensors",)))
    assert time.monotonic() - started < 1


def test_equal_settings_give_equal_fingerprints() -> None:
    records = [build_engine(CONFIG, files())[1] for _ in range(2)]
    other = build_engine(replace(CONFIG, model=replace(CONFIG.model, dtype="bfloat16")), files())[1]
    assert records[0].numerics == records[1].numerics != other.numerics


def test_the_reference_backend_gives_the_same_tokens_and_is_not_deterministic() -> None:
    prompts = [list(range(2, 40))]
    reference, record = build_engine(replace(CONFIG, device=DeviceConfig("cpu", 1, "reference")), files())
    assert tokens_of(reference, prompts) == tokens_of(build_engine(CONFIG, files())[0], prompts)
    assert not record.is_deterministic
