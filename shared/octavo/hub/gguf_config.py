"""A Hugging Face style model configuration from GGUF metadata.

Supported: architectures llama (also Mistral and SmolLM2, which use the same names), qwen2 and qwen3; RoPE scaling
none, linear and yarn from metadata, and llama3 from the `rope_freqs.weight` tensor.  Anything else is refused.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from octavo.errors import InvalidInput
from octavo.hub.gguf import GGUFFile

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

ROPE_FREQS = "rope_freqs.weight"
LLAMA3_LOW, LLAMA3_HIGH, LLAMA3_CONTEXT = 1.0, 4.0, 8192
"""The published Llama 3 constants; a GGUF file holds only the factors that follow from them."""


def gguf_config(file: GGUFFile) -> dict[str, Any]:
    """The configuration in the terms of a Hugging Face `config.json`; raises `InvalidInput` for what is unsupported."""
    architecture = file.metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise _refused(file, f"architecture {architecture!r} is not supported; supported: {known}")

    def get(key: str, default: Any = None) -> Any:
        return file.metadata.get(f"{architecture}.{key}", default)

    def need(key: str) -> Any:
        value = get(key)
        if value is None:
            raise _refused(file, f"the metadata key {architecture}.{key} is missing")
        return value

    if get("expert_count", 0):
        raise _refused(file, f"{architecture}.expert_count is {get('expert_count')}: mixtures of experts are not built")
    num_heads = _uniform(file, "attention.head_count", need("attention.head_count"))
    hidden_size = need("embedding_length")
    head_dim = get("attention.key_length", hidden_size // num_heads)
    if get("attention.value_length", head_dim) != head_dim:
        raise _refused(file, "key and value heads differ in size")
    if get("rope.dimension_count", head_dim) != head_dim:
        raise _refused(file, f"RoPE covers {get('rope.dimension_count')} of {head_dim} dimensions of a head")
    rope_theta = get("rope.freq_base", 10000.0)
    context = need("context_length")
    config: dict[str, Any] = {
        "architectures": [ARCHITECTURES[architecture]],
        "model_type": architecture,
        "hidden_size": hidden_size,
        "intermediate_size": _uniform(file, "feed_forward_length", need("feed_forward_length")),
        "num_hidden_layers": need("block_count"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": _uniform(file, "attention.head_count_kv", get("attention.head_count_kv", num_heads)),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": _short(need("attention.layer_norm_rms_epsilon")),
        "max_position_embeddings": context,
        "rope_theta": rope_theta,
        "rope_scaling": _rope_scaling(file, get, rope_theta, head_dim, context),
        "vocab_size": _vocab_size(file, get),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
    }
    for name, key in (("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding")):
        value = file.metadata.get(f"tokenizer.ggml.{key}_token_id")
        if value is not None:
            config[name] = value
    if get("attention.sliding_window"):
        config["sliding_window"] = get("attention.sliding_window")
    return config


def gguf_eos_ids(file: GGUFFile) -> tuple[int, ...]:
    """The end-of-sequence and end-of-turn ids that the metadata names."""
    ids = (file.metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot"))
    return tuple(dict.fromkeys(i for i in ids if isinstance(i, int)))


def _refused(file: GGUFFile, reason: str) -> InvalidInput:
    return InvalidInput(f"model: {file.path.name}: {reason}", param="model")


def _short(value: float) -> float:
    """A float32 from metadata as the decimal that was written: 9.999999747378752e-06 is 1e-05."""
    return float(f"{value:.7g}")


def _uniform(file: GGUFFile, key: str, value: int | list[int]) -> int:
    """A per-model number; files may give one per layer, which must then be equal."""
    if isinstance(value, list):
        if len(set(value)) != 1:
            raise _refused(file, f"{key} differs between layers")
        return value[0]
    return value


def _vocab_size(file: GGUFFile, get: Any) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is not None:
        return embedding.shape[0]
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    return get("vocab_size", len(tokens) if tokens else 0)


def _rope_scaling(file: GGUFFile, get: Any, theta: float, head_dim: int, context: int) -> dict[str, Any] | None:
    kind = get("rope.scaling.type")
    factor = get("rope.scaling.factor", get("rope.scale_linear"))
    if ROPE_FREQS in file.tensors:
        return _llama3_scaling(file, theta, head_dim)
    if kind in (None, "none") and get("rope.scale_linear") in (None, 0.0, 1.0):
        return None
    if not factor or factor <= 0:
        raise _refused(file, f"RoPE scaling {kind!r} with factor {factor!r}")
    if kind in (None, "linear"):
        return {"rope_type": "linear", "factor": _short(factor)}
    if kind == "yarn":
        original = get("rope.scaling.original_context_length", context)
        return {"rope_type": "yarn", "factor": _short(factor), "original_max_position_embeddings": original}
    raise _refused(file, f"RoPE scaling {kind!r} is not supported; supported: none, linear, yarn, llama3 factors")


def _llama3_scaling(file: GGUFFile, theta: float, head_dim: int) -> dict[str, Any]:
    """The parameters behind the per-frequency factors, proven by computing the factors again."""
    info = file.tensors[ROPE_FREQS]
    if info.type_name != "F32" or info.shape != (head_dim // 2,):
        raise _refused(file, f"{ROPE_FREQS} is {info.type_name} {list(info.shape)}; F32 [{head_dim // 2}] is expected")
    stored = file.data(info).view(np.float32)
    factor = float(stored.max())
    if not np.allclose(stored, llama3_factors(theta, head_dim, factor), rtol=1e-4):
        raise _refused(file, f"{ROPE_FREQS} does not follow the Llama 3 rule with its usual constants")
    return {
        "rope_type": "llama3",
        "factor": _short(factor),
        "low_freq_factor": LLAMA3_LOW,
        "high_freq_factor": LLAMA3_HIGH,
        "original_max_position_embeddings": LLAMA3_CONTEXT,
    }


def llama3_factors(theta: float, head_dim: int, factor: float) -> np.ndarray:
    """Divisors of the RoPE frequencies, float64 `[head_dim / 2]`, by the Llama 3 rule with its published constants."""
    frequency = theta ** -(np.arange(0, head_dim, 2) / head_dim)
    wavelength = 2 * math.pi / frequency
    smooth = (LLAMA3_CONTEXT / wavelength - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW)
    blend = 1.0 / ((1.0 - smooth) / factor + smooth)
    is_short, is_long = wavelength < LLAMA3_CONTEXT / LLAMA3_HIGH, wavelength > LLAMA3_CONTEXT / LLAMA3_LOW
    return np.where(is_short, 1.0, np.where(is_long, factor, blend))
