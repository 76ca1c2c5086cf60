from __future__ import annotations

import numpy as np
import pytest

from gguf_files import LLAMA, write_gguf
from octavo.errors import InvalidInput
from octavo.hub.gguf import GGUFFile
from octavo.hub.gguf_config import gguf_config, llama3_factors

EMBEDDING = {"token_embd.weight": np.zeros((10, 32))}


def config_of(tmp_path, extra=None, tensors=None):
    return gguf_config(
        GGUFFile.open(write_gguf(tmp_path / "m.gguf", LLAMA | (extra or {}), EMBEDDING | (tensors or {})))
    )


def test_llama_in_the_terms_of_config_json(tmp_path):
    config = config_of(tmp_path, {"tokenizer.ggml.eos_token_id": 2})
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert {
        k: config[k] for k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    } == {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    assert (config["head_dim"], config["vocab_size"], config["rms_norm_eps"]) == (8, 10, 1e-5)
    assert (config["rope_theta"], config["rope_scaling"], config["eos_token_id"]) == (10000.0, None, 2)


def test_embeddings_are_tied_exactly_without_an_output_tensor(tmp_path):
    assert config_of(tmp_path)["tie_word_embeddings"] is True
    assert config_of(tmp_path, tensors={"output.weight": np.zeros((10, 32))})["tie_word_embeddings"] is False


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"llama.rope.scaling.type": "none"}, None),
        (
            {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
            {"rope_type": "linear", "factor": 4.0},
        ),
        ({"llama.rope.scale_linear": 2.0}, {"rope_type": "linear", "factor": 2.0}),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 4.0,
                "llama.rope.scaling.original_context_length": 64,
            },
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        ),
    ],
)
def test_rope_scaling(tmp_path, extra, expected):
    assert config_of(tmp_path, extra)["rope_scaling"] == expected


def test_llama3_scaling_is_read_back_from_its_factors(tmp_path):
    factors = llama3_factors(500000.0, 8, 32.0)
    config = config_of(tmp_path, {"llama.rope.freq_base": 500000.0}, {"rope_freqs.weight": factors})
    assert config["rope_scaling"] == {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


@pytest.mark.parametrize(
    ("extra", "tensors", "said"),
    [
        ({"general.architecture": "mamba"}, {}, "'mamba' is not supported; supported: llama, qwen2, qwen3"),
        ({"llama.expert_count": 8}, {}, "mixtures of experts"),
        ({"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 2.0}, {}, "'longrope' is not supported"),
        ({"llama.attention.head_count": [4, 2]}, {}, "differs between layers"),
        ({"llama.rope.dimension_count": 4}, {}, "4 of 8 dimensions"),
        ({}, {"rope_freqs.weight": np.array([1.0, 2.0, 3.0, 9.0])}, "does not follow the Llama 3 rule"),
    ],
)
def test_what_is_unsupported_is_refused_in_one_line(tmp_path, extra, tensors, said):
    with pytest.raises(InvalidInput, match=said) as caught:
        config_of(tmp_path, extra, tensors)
    assert "\n" not in str(caught.value)
