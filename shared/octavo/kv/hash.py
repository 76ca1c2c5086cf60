"""The block hash: one function, used by gateway, router and engine.

A chain value is taken every `CHAIN_TOKENS` tokens; a block's hash is the chain value at its end, so workers with
different block sizes agree.  Values are sha256 cut to 128 bits.  The seed carries everything that makes equal tokens
mean different KV: namespace, model revision, adapter content id (and later media hashes at their offsets).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

CHAIN_TOKENS = 16
HASH_BYTES = 16
ALGORITHM_ID = "chain16-sha256-128-v1"

_PACK = struct.Struct(f"<{CHAIN_TOKENS}I")


def chain_seed(namespace: bytes, model_revision: str, adapter: str = "") -> bytes:
    """The chain's start value for tokens of one namespace, model revision and adapter."""
    h = hashlib.sha256(ALGORITHM_ID.encode())
    for part in (namespace, model_revision.encode(), adapter.encode()):
        h.update(struct.pack("<I", len(part)))
        h.update(part)
    return h.digest()[:HASH_BYTES]


def extend_chain(chain: list[bytes], seed: bytes, token_ids: Sequence[int]) -> None:
    """Append to `chain` the values of all complete runs of `CHAIN_TOKENS` in `token_ids` that it lacks."""
    sha256, pack = hashlib.sha256, _PACK.pack
    value = chain[-1] if chain else seed
    for start in range(len(chain) * CHAIN_TOKENS, len(token_ids) - CHAIN_TOKENS + 1, CHAIN_TOKENS):
        value = sha256(value + pack(*token_ids[start : start + CHAIN_TOKENS])).digest()[:HASH_BYTES]
        chain.append(value)


def block_hashes(chain: Sequence[bytes], block_size: int) -> list[bytes]:
    """The hashes of the full blocks of `block_size` tokens (a multiple of `CHAIN_TOKENS`) that `chain` covers."""
    stride = block_size // CHAIN_TOKENS
    return list(chain[stride - 1 :: stride])
