"""Tiny models on the GPU: the tokens of the CPU, whatever the batch, the cut of prefills, graphs or room."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from octavo.llm import LLM
from octavo.sampling_params import SamplingParams
from octavo.testing.tiny_model import write_tiny_model

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

PROMPTS = [[(i * j + 3 * j) % 500 for j in range(1, 8 * i + 2)] for i in range(20)]
FLAGS = [
    {},
    {"max_num_batched_tokens": 64},
    {"enforce_eager": True},
    {"max_num_seqs": 16, "num_gpu_blocks_override": 14},
]


def tokens(folder: Path, device: str, temperature: float, **flags: object) -> list[list[int]]:
    params = [SamplingParams(temperature=temperature, seed=i, max_tokens=48, ignore_eos=True) for i in range(20)]
    with LLM(str(folder), device=device, dtype="float32", **flags) as llm:
        done = llm.generate([{"prompt_token_ids": p} for p in PROMPTS], params, use_tqdm=False)
    return [r.outputs[0].token_ids for r in done]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_tokens_equal_those_of_the_cpu(family: str, temperature: float, tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / family, family)
    want = tokens(folder, "cpu", temperature)
    for flags in FLAGS:
        assert tokens(folder, "cuda", temperature, **flags) == want, flags
