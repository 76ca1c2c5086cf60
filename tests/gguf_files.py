"""Writes tiny GGUF files for tests."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

_CODES = {"u32": (4, "I"), "i32": (5, "i"), "f32": (6, "f"), "bool": (7, "?"), "u64": (10, "Q")}


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    kind, code = (8, "") if isinstance(value[0], str) else ((6, "f") if isinstance(value[0], float) else (5, "i"))
    body = b"".join(map(_string, value)) if kind == 8 else struct.pack(f"<{len(value)}{code}", *value)
    return struct.pack("<IIQ", 9, kind, len(value)) + body


def write_gguf(path: Path, metadata: dict[str, Any], tensors: dict[str, np.ndarray] | None = None) -> Path:
    """A version 3 file with F32 `tensors`, aligned to 32 bytes."""
    tensors = tensors or {}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_string(key) + _value(value) for key, value in metadata.items())
    offset, body = 0, b""
    for name, array in tensors.items():
        shape = tuple(reversed(array.shape))
        head += _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset)
        data = array.astype(np.float32).tobytes()
        data += b"\0" * (-len(data) % 32)
        body += data
        offset += len(data)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + body)
    return path


LLAMA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 256,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 10000.0,
}
"""Metadata of a tiny llama without a tokenizer."""
