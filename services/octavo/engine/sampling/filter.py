"""Filters that cut the tail, in this order: temperature, min-p, top-k, top-p.

They work on *survivors*: ascending token ids and their scaled logits.  Scaled logits are (logit - highest) / T in
float32, so the highest is 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.engine.sampling import fixed_log
from octavo.sampling_params import SamplingParams

Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

_FEW = 2048
"""So many most likely ids nearly always reach top-p; only where they do not, all values are sorted."""
_LOWEST = np.float32(np.finfo(np.float32).min)


def survivors(row: Float32Array, params: SamplingParams) -> tuple[IntArray, Float32Array]:
    """Ids (ascending) and scaled logits that all filters of `params` let through, from `row` float32 [vocab].

    `row`'s highest value must be finite; forbidden ids are -inf.  At least one id survives.
    """
    scaled = row - row.max()
    scaled /= np.float32(params.temperature)
    floor = _LOWEST
    if params.min_p > 0:
        floor = max(floor, np.float32(fixed_log.log_scalar(params.min_p)))
    top_k = params.top_k
    if 0 < top_k < len(scaled):
        floor = max(floor, kth_value(scaled, top_k))
    ids = np.flatnonzero(scaled >= floor)
    if len(ids) < len(scaled):
        scaled = scaled[ids]
    if params.top_p < 1.0:
        keep = top_p_mask(scaled, params.top_p)
        ids, scaled = ids[keep], scaled[keep]
    return ids, scaled


def kth_value(values: Float32Array, k: int) -> np.float32:
    """The k-th highest of `values` (k from 1); keeping everything ≥ it keeps all ties."""
    return np.float32(np.partition(values, len(values) - k)[len(values) - k])


def top_p_mask(scaled: Float32Array, top_p: float) -> npt.NDArray[np.bool_]:
    """Which of `scaled` belong to the smallest set of most likely ids whose probability reaches `top_p`.

    The id that crosses belongs to it; among equal logits lower ids come first.  Only values are
    sorted: several times cheaper than sorting ids.
    """
    weights = scaled.astype(np.float64)
    np.exp(weights, out=weights)
    wanted = np.add.reduce(weights) * top_p
    candidates = scaled
    if len(scaled) > _FEW:
        candidates = scaled[scaled >= kth_value(scaled, _FEW)]
    best_first, reached = _accumulate(candidates)
    if reached[-1] < wanted and len(candidates) < len(scaled):
        best_first, reached = _accumulate(scaled)
    crossing = min(int(np.searchsorted(reached, wanted, side="left")), len(reached) - 1)
    last = best_first[crossing]
    keep = scaled > last
    ties = np.flatnonzero(scaled == last)
    keep[ties[: crossing + 1 - int(np.count_nonzero(keep))]] = True
    return keep


def _accumulate(scaled: Float32Array) -> tuple[Float32Array, npt.NDArray[np.float64]]:
    """`scaled` from the highest on, and the running sum of exp of it: the same values for any longer set."""
    best_first = np.sort(scaled)[::-1]
    reached = best_first.astype(np.float64)
    np.exp(reached, out=reached)
    np.add.accumulate(reached, out=reached)
    return best_first, reached
