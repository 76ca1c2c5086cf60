"""Model folders of the GPU benchmark's shapes: a config and a tokenizer, to run with random weights."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

_COMMON = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "head_dim": 128,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "num_key_value_heads": 8,
    "torch_dtype": "bfloat16",
}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": _COMMON
    | {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": 151936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
    },
    "llama-3.1-8b": _COMMON
    | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
        },
        "tie_word_embeddings": False,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
    },
}


def write_shape(name: str, parent: Path) -> Path:
    """A folder for the shape `name` under `parent`."""
    folder = parent / name
    folder.mkdir(parents=True, exist_ok=True)
    config = SHAPES[name]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(config["vocab_size"])))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder


def _byte_characters() -> list[str]:
    """The character by which byte-level BPE writes each byte: itself where printable, else the next from 256 on."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = itertools.count(256)
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _tokenizer(vocab_size: int) -> dict[str, Any]:
    """Byte-level BPE without merges: the bytes, then pieces of three letters, so that any id decodes to clean text."""
    pieces = _byte_characters()
    letters = [chr(code) for code in range(33, 127)]
    triples = ("".join(t) for t in itertools.product(letters, repeat=3))
    pieces += itertools.islice(triples, vocab_size - 256)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None}
    model |= {"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    model |= {"vocab": {piece: index for index, piece in enumerate(pieces)}, "merges": []}
    nothing = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor"))
    return {"version": "1.0", "added_tokens": [], "pre_tokenizer": level, "decoder": level, "model": model} | nothing
