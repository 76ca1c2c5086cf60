"""Tiny seeded models in Hugging Face folders, for tests: two layers, width 64, a vocabulary of 512, float32.

`write_tiny_model` needs neither transformers nor torch.  The same arguments give the same bytes on every machine that
has the same numpy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from octavo.errors import InvalidInput, Problem, show
from octavo.testing.tiny_tokenizer import BOS_ID, EOS_ID, VOCAB_SIZE, write_tiny_tokenizer

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    "smollm2": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": True},
    "mistral": {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": None},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": False},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 32},
    "opt": {"architectures": ["OPTForCausalLM"], "model_type": "opt"},
}
"""Family → what its config.json has of its own."""

_LLAMA_BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
_OPT_BASE: dict[str, Any] = {
    "hidden_size": 64,
    "word_embed_proj_dim": 64,
    "ffn_dim": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "activation_function": "relu",
    "do_layer_norm_before": True,
    "enable_bias": True,
    "layer_norm_elementwise_affine": True,
    "tie_word_embeddings": True,
    "pad_token_id": BOS_ID,
}


def tiny_config(family: str = "llama", **overrides: Any) -> dict[str, Any]:
    """The config.json of a tiny model of `family`; `overrides` replace or add keys.

    Raises `InvalidInput` for an unknown family.
    """
    if family not in FAMILIES:
        raise InvalidInput.of([Problem("family", show(family), f"must be one of {tuple(FAMILIES)}")])
    return {
        **(_OPT_BASE if family == "opt" else _LLAMA_BASE),
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": 1024,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "torch_dtype": "float32",
        **FAMILIES[family],
        **overrides,
    }


def _llama_shapes(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    q, kv = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    is_qwen2 = config["model_type"] == "qwen2"
    has_bias = config.get("attention_bias", is_qwen2)
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        for part, shape in (("q", (q, hidden)), ("k", (kv, hidden)), ("v", (kv, hidden)), ("o", (hidden, q))):
            yield f"{name}self_attn.{part}_proj.weight", shape
            if has_bias and not (is_qwen2 and part == "o"):
                yield f"{name}self_attn.{part}_proj.bias", shape[:1]
        if config["model_type"] == "qwen3":
            yield f"{name}self_attn.q_norm.weight", (head_dim,)
            yield f"{name}self_attn.k_norm.weight", (head_dim,)
        for part, shape in (("gate", (ffn, hidden)), ("up", (ffn, hidden)), ("down", (hidden, ffn))):
            yield f"{name}mlp.{part}_proj.weight", shape
            if config.get("mlp_bias"):
                yield f"{name}mlp.{part}_proj.bias", shape[:1]
        yield f"{name}input_layernorm.weight", (hidden,)
        yield f"{name}post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], hidden)


def _opt_shapes(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, ffn, width = config["hidden_size"], config["ffn_dim"], config["word_embed_proj_dim"]
    name = "model.decoder."
    yield f"{name}embed_tokens.weight", (config["vocab_size"], width)
    yield f"{name}embed_positions.weight", (config["max_position_embeddings"] + 2, hidden)
    if width != hidden:
        yield f"{name}project_in.weight", (hidden, width)
        yield f"{name}project_out.weight", (width, hidden)
    norms = ["self_attn_layer_norm", "final_layer_norm"]
    linears = [(f"self_attn.{part}", (hidden, hidden)) for part in ("q_proj", "k_proj", "v_proj", "out_proj")]
    linears += [("fc1", (ffn, hidden)), ("fc2", (hidden, ffn))]
    for layer in range(config["num_hidden_layers"]):
        for part, shape in linears:
            yield f"{name}layers.{layer}.{part}.weight", shape
            if config["enable_bias"]:
                yield f"{name}layers.{layer}.{part}.bias", shape[:1]
        if config["layer_norm_elementwise_affine"]:
            for norm in norms:
                yield f"{name}layers.{layer}.{norm}.weight", (hidden,)
                yield f"{name}layers.{layer}.{norm}.bias", (hidden,)
    has_final_norm = config["do_layer_norm_before"] and not config.get("_remove_final_layer_norm")
    if has_final_norm and config["layer_norm_elementwise_affine"]:
        yield f"{name}final_layer_norm.weight", (hidden,)
        yield f"{name}final_layer_norm.bias", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], width)


def tiny_weights(config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Seeded float32 weights by Hugging Face name, scaled so that greedy outputs vary and do not tie."""
    rng = np.random.default_rng(seed)
    shapes = _opt_shapes(config) if config["model_type"] == "opt" else _llama_shapes(config)
    weights = {}
    for name, shape in shapes:
        noise = rng.standard_normal(shape, dtype=np.float32)
        if "norm" in name:
            value = (1.0 if name.endswith("weight") else 0.0) + 0.1 * noise
        elif "embed" in name or len(shape) == 1:
            value = 0.1 * noise
        else:
            value = noise * np.float32((2.0 if name == "lm_head.weight" else 1.0) / shape[1] ** 0.5)
        weights[name] = np.ascontiguousarray(value, dtype=np.float32)
    return weights


def write_tiny_model(folder: Path | str, family: str = "llama", seed: int = 0, **overrides: Any) -> Path:
    """Write a whole model folder: config, safetensors, tokenizer with ChatML template, generation config.

    `family` is a key of `FAMILIES`; `overrides` go into config.json and shape the weights (`num_hidden_layers=1`,
    `max_position_embeddings=256` …).  `vocab_size` may only grow: the tokenizer has 512 tokens.  Returns the folder.
    """
    folder = Path(folder)
    config = tiny_config(family, **overrides)
    if config["vocab_size"] < VOCAB_SIZE:
        raise InvalidInput.of([Problem("vocab_size", show(config["vocab_size"]), f"must be at least {VOCAB_SIZE}")])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    generation = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID}
    (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    save_file(tiny_weights(config, seed), folder / "model.safetensors", metadata={"format": "pt"})
    write_tiny_tokenizer(folder)
    return folder
