"""Log-probabilities of raw logits: before masks, penalties, temperature and filters."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.engine.sampling import fixed_log
from octavo.request import TokenLogprobs

Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


def log_normalizer(row: Float32Array) -> float:
    """log of the sum of exp(row), row float32 [vocab] with a finite maximum; sums in float64, in one fixed order."""
    peak = float(row.max())
    weights = row.astype(np.float64)
    weights -= peak
    np.exp(weights, out=weights)
    return peak + fixed_log.log_scalar(float(np.add.reduce(weights)))


def top_ids(row: Float32Array, k: int) -> IntArray:
    """Ids of the `k` highest values of `row`, best first, ties by lowest id."""
    k = min(k, len(row))
    if k == 0:
        return np.empty(0, dtype=np.int64)
    kth = np.partition(row, len(row) - k)[len(row) - k]
    ids = np.flatnonzero(row >= kth)
    order = np.argsort(-row[ids], kind="stable")
    return ids[order[:k]]


def token_logprobs(row: Float32Array, token_id: int, num_top: int) -> TokenLogprobs:
    """Logprob and rank of `token_id` and the `num_top` most likely ids; values are exact in float32."""
    normalizer = log_normalizer(row)
    value = row[token_id]
    best = top_ids(row, num_top)
    return TokenLogprobs(
        logprob=_float32(float(value) - normalizer),
        rank=int(np.count_nonzero(row > value)) + 1,
        top_ids=best.tolist(),
        top_logprobs=[_float32(x - normalizer) for x in row[best].tolist()],
    )


def _float32(value: float) -> float:
    """Rounded to float32, so that a 32-bit field on some wire changes nothing."""
    return float(np.float32(value))
