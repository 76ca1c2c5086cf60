"""Sampling noise: a function of (seed, sequence, position, token id) and of nothing else.

Algorithm `philox4x32-10-gumbel-v1`:

- Generator: Philox4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
  Key = (low, high) 32 bits of the request's 64-bit seed.
- Counter = (token id // 4, absolute position of the token being chosen, sequence index, 1); the last word is the
  layout's version.  Lane `token id % 4` of the four output words belongs to the token.
- Uniform = (word + ½) / 2**32: 32 bits, exact in float64, never 0 or 1.
- Gumbel = -log(-log(uniform)) with `fixed_log.log`.

The value for a token id does not depend on which other ids are asked for, so noise is computed for survivors only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.engine.sampling import fixed_log

ALGORITHM_ID = "philox4x32-10-gumbel-v1"
LAYOUT_VERSION = 1
LANES = 4

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)

UInt32Array = npt.NDArray[np.uint32]
UInt64Array = npt.NDArray[np.uint64]
IntArray = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]


def philox(
    counter: tuple[UInt64Array, UInt64Array, UInt64Array, UInt64Array], key: tuple[int, int]
) -> tuple[UInt64Array, UInt64Array, UInt64Array, UInt64Array]:
    """Philox4x32-10 of counters (words below 2**32 as uint64 arrays [1] or [n]); four output words."""
    c0, c1, c2, c3 = np.broadcast_arrays(*counter)
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c2 = p1 >> _32, p0 >> _32
        c0 ^= c1 ^ np.uint64(k0)
        c2 ^= c3 ^ np.uint64(k1)
        c1, c3 = np.bitwise_and(p1, _LOW, out=p1), np.bitwise_and(p0, _LOW, out=p0)
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return c0, c1, c2, c3


def words(seed: int, sequence: int, position: int, token_ids: IntArray) -> UInt32Array:
    """The 32-bit word of each token id (ascending, as a survivor set is), as uint32 [len(token_ids)]."""
    size = int(token_ids[-1]) + 1
    is_dense = len(token_ids) * LANES > size
    if is_dense:
        blocks = np.arange((size + LANES - 1) // LANES, dtype=np.uint64)
    else:
        blocks = (token_ids // LANES).astype(np.uint64)
    counter = (blocks, _word(position), _word(sequence), _word(LAYOUT_VERSION))
    table = np.empty((len(blocks), LANES), dtype=np.uint32)
    for lane, word in enumerate(philox(counter, (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF))):
        table[:, lane] = word
    if not is_dense:
        return table[np.arange(len(blocks)), token_ids % LANES]
    flat = table.reshape(-1)
    return flat[:size] if len(token_ids) == size else flat[token_ids]


def uniform(word: UInt32Array) -> Float64Array:
    """The uniform in (0, 1) of each 32-bit word."""
    u = word.astype(np.float64)
    u += 0.5
    u *= 2.0**-32
    return u


def gumbel(seed: int, sequence: int, position: int, token_ids: IntArray) -> Float64Array:
    """Standard Gumbel noise of each of `token_ids` (ascending, not empty)."""
    return gumbel_of(uniform(words(seed, sequence, position, token_ids)))


def gumbel_of(u: Float64Array) -> Float64Array:
    """-log(-log(u)) by the fixed algorithm."""
    return -fixed_log.log(-fixed_log.log(u))


def _word(value: int) -> UInt64Array:
    return np.array([value & 0xFFFFFFFF], dtype=np.uint64)
