"""Digests over the bytes as stored: xxh3, 64 bits, little-endian."""

from __future__ import annotations

import struct

import numpy as np
import xxhash

ALGORITHM_ID = "xxh3-64-v1"
DIGEST_BYTES = 8

_PACK = struct.Struct("<Q").pack


def digest(data: np.ndarray) -> bytes:
    """The digest of contiguous bytes."""
    return _PACK(xxhash.xxh3_64_intdigest(data.data))


class Hasher:
    """The same digest over bytes that come in pieces."""

    def __init__(self) -> None:
        self._state = xxhash.xxh3_64()

    def update(self, data: np.ndarray) -> None:
        self._state.update(data.data)

    def digest(self) -> bytes:
        return _PACK(self._state.intdigest())
