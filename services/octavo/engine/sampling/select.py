"""Choosing one id: the highest logit, or the highest logit plus noise.  Ties go to the lowest id."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.engine.sampling import noise

Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

_SCREEN_ABOVE = 1024
_SCREEN_MARGIN = 1e-6


def greedy(row: Float32Array) -> int:
    """The id of the highest logit of `row` [vocab]; of the first NaN, if there is one."""
    return int(row.argmax())


def with_noise(ids: IntArray, scaled: Float32Array, *, seed: int, sequence: int, position: int) -> int:
    """argmax(scaled + Gumbel noise) over the survivors `ids` (ascending), sums in float64.

    Large sets are screened with the platform's logarithm first: it is right to far better than the margin, so the
    winner by the fixed algorithm is always among those left.
    """
    if len(ids) == 1:
        return int(ids[0])
    u = noise.uniform(noise.words(seed, sequence, position, ids))
    if len(ids) > _SCREEN_ABOVE:
        rough = scaled - np.log(-np.log(u))
        left = np.flatnonzero(rough >= rough.max() - _SCREEN_MARGIN)
        ids, scaled, u = ids[left], scaled[left], u[left]
    return int(ids[(scaled + noise.gumbel_of(u)).argmax()])
