"""A token's hidden state and logits have the same bits alone and beside others, in every family and precision."""

import pytest
import torch
from model_double import OneRank

from octavo.engine.model.loader import load
from octavo.engine.model.registry import create_model
from octavo.hub.files import ModelFiles
from octavo.kernels.cpu import native
from octavo.testing.tiny_model import tiny_config

CONFIGS = {
    "llama": tiny_config("llama", attention_bias=True, mlp_bias=True),
    "llama, gelu, odd width": tiny_config("llama", hidden_act="gelu", intermediate_size=100),
    "smollm2": tiny_config("smollm2"),
    "qwen2": tiny_config("qwen2"),
    "qwen3": tiny_config("qwen3"),
    "opt": tiny_config("opt"),
    "opt, norm after": tiny_config("opt", do_layer_norm_before=False, word_embed_proj_dim=32),
}
NUM_ROWS = 37


def own_row(layer, q, k, v):
    """An attention in which each token sees itself alone, so that whatever mixes rows is the model's own doing."""
    return q + v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)


@pytest.mark.parametrize("kernels", ["native", "torch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("label", CONFIGS)
def test_a_row_does_not_depend_on_its_batch(label, dtype, kernels, monkeypatch):
    if kernels == "torch":
        monkeypatch.setattr(native, "library", lambda: None)
    config = CONFIGS[label]
    model = create_model(config, dtype, "cpu", OneRank())
    load(model, ModelFiles("tiny", "none", config, (), None), "dummy", 1)
    ids = torch.randint(0, config["vocab_size"], (NUM_ROWS,), generator=torch.Generator().manual_seed(1))
    positions = torch.arange(NUM_ROWS)

    def run(start, end):
        hidden = model.forward(ids[start:end], positions[start:end], own_row, lambda: None)
        return hidden, model.logits(hidden)

    with torch.inference_mode():
        hidden, logits = run(0, NUM_ROWS)
        for size in (1, 2, 5, 16):
            parts = [run(start, start + size) for start in range(0, NUM_ROWS, size)]
            assert torch.equal(torch.cat([part[0] for part in parts]), hidden), size
            assert torch.equal(torch.cat([part[1] for part in parts]), logits), size
