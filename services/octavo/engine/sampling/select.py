"""Choosing one id: the highest logit, or the highest logit plus noise.  Ties go to the lowest id."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.engine.sampling import noise

Float32Array = npt.NDArray[np.float32]
UInt32Array = npt.NDArray[np.uint32]
IntArray = npt.NDArray[np.int64]

_SCREEN_ABOVE = 1024
_SCREEN_MARGIN = 1.0001


def greedy(row: Float32Array) -> int:
    """The id of the highest logit of `row` [vocab]; of the first NaN, if there is one."""
    return int(row.argmax())


def with_noise(ids: IntArray, scaled: Float32Array, *, seed: int, sequence: int, position: int) -> int:
    """argmax(scaled + Gumbel noise) over the survivors `ids` (ascending), sums in float64."""
    if len(ids) == 1:
        return int(ids[0])
    words = noise.words(seed, sequence, position, ids)
    if len(ids) > _SCREEN_ABOVE:
        left = _screen(scaled, words)
        ids, scaled, words = ids[left], scaled[left], words[left]
    return int(ids[(scaled + noise.gumbel_of(noise.uniform(words))).argmax()])


def _screen(scaled: Float32Array, words: UInt32Array) -> IntArray:
    """Indexes that include the winner, without a logarithm per id.

    Let s be a scaled logit, u its uniform, and b what the most likely id reaches.  An id wins only if
    s - log(-log u) ≥ b, so -log u ≤ exp(s - b), and 1 - u ≤ -log u.  The margin covers float32.
    """
    best = int(scaled.argmax())
    reached = float(scaled[best]) + float(noise.gumbel_of(noise.uniform(words[best : best + 1]))[0])
    at_most = np.exp(scaled - np.float32(reached))
    at_most *= np.float32(_SCREEN_MARGIN * 2.0**32)
    return np.flatnonzero((~words).astype(np.float32) <= at_most)
