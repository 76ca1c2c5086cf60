"""Every family and RoPE variant against transformers in float32, over a dense cache."""

from __future__ import annotations

import inspect

import pytest
import torch
from transformers import DynamicCache

from octavo.testing.tiny_model import write_tiny_model
from oracle import parity
from oracle.families import CONFIGS, DYNAMIC

LENGTHS = (1, 7, 33, 90)


@pytest.mark.parametrize("label", CONFIGS)
def test_logits_and_greedy_tokens_equal_those_of_transformers(label, tmp_path):
    kind, settings = CONFIGS[label]
    theirs = parity.make_theirs(parity.config_of(kind, **settings))
    ours = parity.read_ours(parity.save(theirs, tmp_path))
    prompts = parity.prompts(LENGTHS, 5)
    with torch.inference_mode():
        expected = theirs(torch.tensor([prompts[-1]])).logits[0]
    torch.testing.assert_close(parity.our_logits(ours, prompts[-1]), expected, rtol=1e-4, atol=2e-4)
    torch.testing.assert_close(parity.our_logits(ours, prompts[-1], chunk=16), expected, rtol=1e-4, atol=2e-4)
    parity.assert_same_greedy(
        [parity.our_greedy(ours, p) for p in prompts], parity.their_greedy(theirs, prompts), label
    )


def test_dynamic_rope_generates_past_its_original_length_as_transformers_does(tmp_path):
    theirs = parity.make_theirs(parity.config_of("llama", **DYNAMIC))
    ours = parity.read_ours(parity.save(theirs, tmp_path))
    assert ours.max_position == 4 * 48
    # Below the original length: from there on, transformers keeps the base of whatever longer sequence it saw last.
    prompts = parity.prompts((1, 7, 33, 47), 5)
    parity.assert_same_greedy(
        [parity.our_greedy(ours, p) for p in prompts], parity.their_greedy(theirs, prompts), "dynamic"
    )


def test_dynamic_rope_equals_transformers_fed_token_by_token(tmp_path):
    theirs = parity.make_theirs(parity.config_of("llama", **DYNAMIC))
    ours = parity.read_ours(parity.save(theirs, tmp_path))
    (prompt,) = parity.prompts((100,), 1)
    keyword = "cache" if "cache" in inspect.signature(theirs.forward).parameters else "past_key_values"
    cache, expected = DynamicCache(config=theirs.config), []
    with torch.inference_mode():
        for token in prompt:
            expected.append(theirs(torch.tensor([[token]]), use_cache=True, **{keyword: cache}).logits[0])
    for chunk in (0, 7):
        torch.testing.assert_close(parity.our_logits(ours, prompt, chunk), torch.cat(expected), rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("family", ["llama", "smollm2", "mistral", "qwen2", "qwen3", "opt"])
def test_the_tiny_models_of_the_testing_package_load_in_transformers(family, tmp_path):
    folder = write_tiny_model(tmp_path, family, **({} if family == "opt" else {"rope_theta": 50000.0}))
    theirs, ours = parity.read_theirs(folder), parity.read_ours(folder)
    (prompt,) = parity.prompts((60,), 1)
    with torch.inference_mode():
        expected = theirs(torch.tensor([prompt])).logits[0]
    torch.testing.assert_close(parity.our_logits(ours, prompt), expected, rtol=1e-4, atol=2e-4)
