"""GGUF block types to float32, vectorized over blocks.

Each function takes the stored bytes of whole blocks, uint8 [num_blocks, bytes_per_block], and returns float32
[num_blocks, values_per_block].  The layouts are those of the GGUF specification: scales are little-endian float16,
and a byte of nibbles holds value i in its low half and value i + half in its high half.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Blocks = np.ndarray


def _half(blocks: Blocks, start: int) -> np.ndarray:
    """The float16 at byte `start` of each block, as float32 [num_blocks, 1]."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: np.ndarray) -> np.ndarray:
    """uint8 [n, m] → uint8 [n, 2m]: all low halves, then all high halves."""
    return np.concatenate((packed & 15, packed >> 4), axis=1)


def _fifth_bits(blocks: Blocks, start: int) -> np.ndarray:
    """The 32 bits at byte `start`, each worth 16: uint8 [n, 32]."""
    return np.unpackbits(blocks[:, start : start + 4], axis=1, bitorder="little") << 4


def f32(blocks: Blocks) -> np.ndarray:
    return blocks.view("<f4")


def f16(blocks: Blocks) -> np.ndarray:
    return blocks.view("<f2").astype(np.float32)


def bf16(blocks: Blocks) -> np.ndarray:
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def q8_0(blocks: Blocks) -> np.ndarray:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def q4_0(blocks: Blocks) -> np.ndarray:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).astype(np.float32) - 8)


def q4_1(blocks: Blocks) -> np.ndarray:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]).astype(np.float32) + _half(blocks, 2)


def q5_0(blocks: Blocks) -> np.ndarray:
    values = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)
    return _half(blocks, 0) * (values.astype(np.float32) - 16)


def q5_1(blocks: Blocks) -> np.ndarray:
    values = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)
    return _half(blocks, 0) * values.astype(np.float32) + _half(blocks, 2)


def _six_bit_scales(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """12 bytes → 8 scales and 8 minima of 6 bits each, float32 [n, 8] both."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate((first & 63, (third & 15) | ((first >> 6) << 4)), axis=1)
    minima = np.concatenate((second & 63, (third >> 4) | ((second >> 6) << 4)), axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _scaled_minus_minimum(blocks: Blocks, values: np.ndarray) -> np.ndarray:
    """Values [n, 8, 32] of a K block whose scale, minimum scale and packed scales are its first 16 bytes."""
    scales, minima = _six_bit_scales(blocks[:, 4:16])
    scales, minima = _half(blocks, 0) * scales, _half(blocks, 2) * minima
    return (scales[:, :, None] * values.astype(np.float32) - minima[:, :, None]).reshape(len(blocks), 256)


def q4_k(blocks: Blocks) -> np.ndarray:
    packed = blocks[:, 16:].reshape(-1, 4, 32)
    values = np.stack((packed & 15, packed >> 4), axis=2).reshape(-1, 8, 32)
    return _scaled_minus_minimum(blocks, values)


def q5_k(blocks: Blocks) -> np.ndarray:
    packed = blocks[:, 48:].reshape(-1, 4, 32)
    low = np.stack((packed & 15, packed >> 4), axis=2).reshape(-1, 8, 32)
    shifts = np.arange(8, dtype=np.uint8)[None, :, None]
    fifth = (blocks[:, None, 16:48] >> shifts) & 1
    return _scaled_minus_minimum(blocks, low | (fifth << 4))


def q6_k(blocks: Blocks) -> np.ndarray:
    """256 values in two halves; in each, four runs of 32 take their low 4 bits and their high 2 bits in turn."""
    low = blocks[:, :128].reshape(-1, 2, 2, 32)
    low = np.concatenate((low & 15, low >> 4), axis=2)
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8)[None, None, :, None]
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3
    values = (low | (high << 4)).astype(np.float32) - 32
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32) * _half(blocks, 208)
    return (values.reshape(-1, 16, 16) * scales[:, :, None]).reshape(-1, 256)


@dataclass(frozen=True)
class BlockType:
    """How one type is stored and read."""

    num_bytes: int
    decode: Callable[[Blocks], np.ndarray]


BLOCK_TYPES: dict[str, BlockType] = {
    "F32": BlockType(4, f32),
    "F16": BlockType(2, f16),
    "BF16": BlockType(2, bf16),
    "Q8_0": BlockType(34, q8_0),
    "Q4_0": BlockType(18, q4_0),
    "Q4_1": BlockType(20, q4_1),
    "Q5_0": BlockType(22, q5_0),
    "Q5_1": BlockType(24, q5_1),
    "Q4_K": BlockType(144, q4_k),
    "Q5_K": BlockType(176, q5_k),
    "Q6_K": BlockType(210, q6_k),
}
"""The types that can be read, by their GGUF names."""


def dequantize(data: np.ndarray, type_name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Stored bytes, uint8 [num_bytes], of a type in `BLOCK_TYPES` → float32 of `shape`."""
    kind = BLOCK_TYPES[type_name]
    return kind.decode(data.reshape(-1, kind.num_bytes)).reshape(shape)
