"""GGUF weights against the gguf package and against the same weights in safetensors."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from octavo.engine.model.base import CausalLM
from octavo.engine.model.loader import load
from octavo.engine.model.loader.dequant import BLOCK_TYPES, dequantize
from octavo.engine.model.registry import create_model
from octavo.hub.files import ModelFiles
from octavo.hub.gguf import GGUFFile
from octavo.hub.gguf_config import gguf_config
from octavo.testing.tiny_model import write_tiny_model
from oracle import parity
from oracle.gguf_file import read_config, write_gguf


def read_gguf(path: Path) -> CausalLM:
    config = gguf_config(GGUFFile.open(path))
    model = create_model(config, torch.float32, "cpu", parity.OneRank())
    load(model, ModelFiles("test", "gguf", config, (path,), None))
    return model


@pytest.mark.parametrize("type_name", BLOCK_TYPES)
def test_every_block_type_is_read_as_the_gguf_package_reads_it(type_name):
    kind = gguf.GGMLQuantizationType[type_name]
    _, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(5)
    data = rng.integers(0, 256, (64, num_bytes), dtype=np.uint8)
    for at in {"Q6_K": (208,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q4_1": (0, 2), "Q5_1": (0, 2)}.get(type_name, (0,)):
        if type_name not in ("F32", "F16", "BF16"):
            data[:, at : at + 2] = rng.standard_normal(64).astype("<f2").view(np.uint8).reshape(64, 2)
    expected = gguf.quants.dequantize(data, kind)
    got = dequantize(data.reshape(-1), type_name, expected.shape)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", ["llama", "smollm2", "qwen2", "qwen3"])
def test_a_gguf_file_gives_the_tokens_of_the_same_weights_in_safetensors(family, tmp_path):
    folder = write_tiny_model(tmp_path / "model", family)
    ours = parity.read_ours(folder)
    write_gguf(
        tmp_path / "model.gguf",
        read_config(folder),
        load_file(folder / "model.safetensors"),
        gguf.GGMLQuantizationType.F32,
    )
    from_gguf = read_gguf(tmp_path / "model.gguf")
    for prompt in parity.prompts((1, 9, 40), 2):
        assert torch.equal(parity.our_logits(ours, prompt), parity.our_logits(from_gguf, prompt))
        assert parity.our_greedy(ours, prompt, 16) == parity.our_greedy(from_gguf, prompt, 16)


@pytest.mark.parametrize("type_name", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_a_quantized_file_equals_transformers_with_the_dequantized_weights(type_name, tmp_path):
    kind = gguf.GGMLQuantizationType[type_name]
    folder = write_tiny_model(tmp_path / "model", "llama")
    weights = load_file(folder / "model.safetensors")
    write_gguf(tmp_path / "model.gguf", read_config(folder), weights, kind)
    theirs = parity.read_theirs(folder)
    state = {
        name: torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(value, kind), kind))
        for name, value in weights.items()
        if value.ndim == 2
    }
    theirs.load_state_dict(state, strict=False)
    (prompt,) = parity.prompts((40,), 1)
    with torch.inference_mode():
        expected = theirs(torch.tensor([prompt])).logits[0]
    got = parity.our_logits(read_gguf(tmp_path / "model.gguf"), prompt)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=2e-4)
