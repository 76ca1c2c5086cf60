"""Every family and RoPE variant through the whole engine: paged cache, chunked prefill, full batches."""

from __future__ import annotations

import gguf
import pytest
from safetensors.numpy import load_file

from octavo.llm import LLM
from octavo.sampling_params import SamplingParams
from octavo.testing.tiny_model import write_tiny_model
from octavo.testing.tiny_tokenizer import write_tiny_tokenizer
from oracle import parity
from oracle.families import CONFIGS, DYNAMIC, SIZES
from oracle.gguf_file import read_config, write_gguf

GREEDY = SamplingParams(temperature=0.0, max_tokens=parity.NUM_TOKENS, ignore_eos=True)
ALL = {**CONFIGS, "llama, rope dynamic": ("llama", DYNAMIC)}


def engine_tokens(folder, prompts, **flags):
    settings = {"dtype": "float32", "block_size": 16, "kv_cache_memory_bytes": 32 << 20, "device": "cpu", **flags}
    with LLM(str(folder), **settings) as llm:
        outputs = llm.generate([{"prompt_token_ids": p} for p in prompts], GREEDY, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.mark.parametrize("label", ALL)
def test_the_engine_gives_the_greedy_tokens_of_transformers(label, tmp_path):
    kind, settings = ALL[label]
    theirs = parity.make_theirs(parity.config_of(kind, **settings))
    folder = parity.save(theirs, tmp_path)
    write_tiny_tokenizer(folder)
    prompts = parity.prompts((1, 7, 33, 47) if "dynamic" in label else (1, 7, 33, 90), 5)
    ours = engine_tokens(folder, prompts, max_num_batched_tokens=64)
    parity.assert_same_greedy(ours, parity.their_greedy(theirs, prompts), label)


def test_the_size_of_chunks_changes_no_token(tmp_path):
    theirs = parity.make_theirs(parity.config_of("llama", **SIZES))
    folder = parity.save(theirs, tmp_path)
    write_tiny_tokenizer(folder)
    prompts = parity.prompts((20, 70), 2)
    small, middle, large = (engine_tokens(folder, prompts, max_num_batched_tokens=n) for n in (16, 64, 512))
    assert small == middle == large


@pytest.mark.parametrize("family", ["llama", "smollm2", "qwen2", "qwen3"])
def test_a_gguf_file_gives_the_tokens_of_the_same_weights_in_safetensors(family, tmp_path):
    folder = write_tiny_model(tmp_path / "model", family)
    path = tmp_path / "model.gguf"
    weights = load_file(folder / "model.safetensors")
    write_gguf(path, read_config(folder), weights, gguf.GGMLQuantizationType.F32)
    prompts = parity.prompts((1, 9, 40), 3)
    assert engine_tokens(path, prompts, tokenizer=str(folder)) == engine_tokens(folder, prompts)
