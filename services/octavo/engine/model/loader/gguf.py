"""Weights from a GGUF file, dequantized, by their Hugging Face names."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import torch

from octavo.engine.model.base import CausalLM
from octavo.engine.model.loader.dequant import BLOCK_TYPES, dequantize
from octavo.errors import InvalidInput, Problem, show
from octavo.hub.files import ModelFiles
from octavo.hub.gguf import GGUFFile, TensorInfo

ARCHITECTURES = ("llama", "qwen2", "qwen3")
PERMUTED = ("llama",)
"""Architectures whose converter interleaves the rows of q and k for rotation by neighbours."""

IN_CONFIG = "rope_freqs.weight"
"""Factors of a llama3 RoPE scaling, which the config made from the file already carries."""

EMBEDDING, HEAD = "token_embd.weight", "output.weight"
_HEAD_NAME = "lm_head.weight"
_TOP = {
    EMBEDDING: "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    HEAD: _HEAD_NAME,
}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_PATTERN = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")


def hugging_face_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor; a name that has none is returned as it is."""
    match = _PATTERN.fullmatch(name)
    if match and match[2] in _BLOCK:
        return f"model.layers.{match[1]}.{_BLOCK[match[2]]}.{match[3]}"
    return _TOP.get(name, name)


def weights(model: CausalLM, files: ModelFiles, seed: int) -> tuple[int, Iterator[tuple[str, torch.Tensor]]]:
    """Number of weights, and each as float32 by Hugging Face name.

    A model whose head is not tied gets the embedding as its head where the file has no head of its own.  Raises
    `InvalidInput` for a broken file, an unknown architecture, or types of tensors that cannot be read.
    """
    if len(files.weights) != 1:
        raise InvalidInput.of([Problem("model", f"{len(files.weights)} files", "GGUF weights are one file")])
    file = GGUFFile.open(files.weights[0])
    architecture = str(file.metadata.get("general.architecture", ""))
    problems = []
    if architecture not in ARCHITECTURES:
        problems.append(Problem("general.architecture", show(architecture), f"must be one of {ARCHITECTURES}"))
    unreadable = sorted({info.type_name for info in file.tensors.values()} - set(BLOCK_TYPES))
    if unreadable:
        problems.append(Problem("tensor type", ", ".join(unreadable), f"readable are {', '.join(BLOCK_TYPES)}"))
    if problems:
        raise InvalidInput.of(problems)
    num_heads = {part: _num_heads(file, architecture, part) for part in ("attn_q", "attn_k")}
    if architecture not in PERMUTED:
        num_heads = {}
    is_head_needed = any(name == _HEAD_NAME for name, _ in model.weights.shapes())
    return len(file.tensors), _read(file, num_heads, needs_head=is_head_needed and HEAD not in file.tensors)


def _num_heads(file: GGUFFile, architecture: str, part: str) -> int:
    num_heads = file.metadata.get(f"{architecture}.attention.head_count")
    if part == "attn_k":
        num_heads = file.metadata.get(f"{architecture}.attention.head_count_kv", num_heads)
    if not isinstance(num_heads, int) or num_heads < 1:
        key = f"{architecture}.attention.head_count"
        raise InvalidInput.of([Problem(key, show(num_heads), "must be one number above 0")])
    return num_heads


def _read(file: GGUFFile, num_heads: dict[str, int], *, needs_head: bool) -> Iterator[tuple[str, torch.Tensor]]:
    for info in file.tensors.values():
        if info.name == IN_CONFIG:
            continue
        value = _dequantized(file, info)
        part = info.name.split(".")[2] if info.name.startswith("blk.") else ""
        if part in num_heads:
            value = unpermute(value, num_heads[part])
        tensor = torch.from_numpy(value)
        yield hugging_face_name(info.name), tensor
        if needs_head and info.name == EMBEDDING:
            yield _HEAD_NAME, tensor


def _dequantized(file: GGUFFile, info: TensorInfo) -> np.ndarray:
    value = dequantize(file.data(info), info.type_name, info.shape)
    return value if value.flags.writeable else value.copy()


def unpermute(value: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of each head from neighbours (0, d/2, 1, d/2 + 1, …) back to two halves (0 … d/2 - 1, d/2 … d - 1)."""
    rest = value.shape[1:]
    pairs = value.reshape(num_heads, value.shape[0] // num_heads // 2, 2, *rest)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(value.shape)
