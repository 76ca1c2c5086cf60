"""Tiny configs of every family, RoPE variant and option that the oracle tests run: label → (kind, settings)."""

from __future__ import annotations

SIZES = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
OPT_SIZES = {
    "vocab_size": 512,
    "hidden_size": 64,
    "ffn_dim": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "pad_token_id": 1,
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}

CONFIGS = {
    "llama": ("llama", SIZES),
    "llama with every bias, wide heads": (
        "llama",
        {**SIZES, "attention_bias": True, "mlp_bias": True, "head_dim": 32, "hidden_act": "gelu"},
    ),
    "llama, rope linear": ("llama", {**SIZES, "rope_parameters": {"rope_type": "linear", "factor": 4.0}}),
    "llama, rope llama3": (
        "llama",
        {**SIZES, "rope_parameters": {**LLAMA3, "original_max_position_embeddings": 32, "rope_theta": 500000.0}},
    ),
    "llama, rope yarn": ("llama", {**SIZES, "rope_parameters": YARN}),
    "llama, rope yarn with mscale": (
        "llama",
        {**SIZES, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": False}},
    ),
    "smollm2": ("llama", {**SIZES, "tie_word_embeddings": True, "rope_theta": 100000.0}),
    "mistral": ("mistral", {**SIZES, "sliding_window": None, "head_dim": 32}),
    "mistral with a window": ("mistral", {**SIZES, "sliding_window": 24}),
    "qwen2": ("qwen2", SIZES),
    "qwen2 with a window above": (
        "qwen2",
        {**SIZES, "use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {**SIZES, "head_dim": 32}),
    "qwen3 with biases, tied": (
        "qwen3",
        {**SIZES, "head_dim": 16, "attention_bias": True, "tie_word_embeddings": True},
    ),
    "opt": ("opt", OPT_SIZES),
    "opt, norm after": ("opt", {**OPT_SIZES, "do_layer_norm_before": False, "word_embed_proj_dim": 32}),
    "opt without biases and affine norms": (
        "opt",
        {**OPT_SIZES, "enable_bias": False, "layer_norm_elementwise_affine": False},
    ),
}

DYNAMIC = {**SIZES, "max_position_embeddings": 48, "rope_parameters": {"rope_type": "dynamic", "factor": 4.0}}
