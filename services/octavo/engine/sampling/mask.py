"""What may not be chosen, and by how much some ids are favoured: allowed ids, min tokens, logit bias."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float32Array = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


def apply_allowed(row: Float32Array, allowed: BoolArray) -> None:
    """Forbid (-inf) every id of `row` that is False in `allowed` [≤ vocab]; ids past its end are forbidden too."""
    row[: len(allowed)][~allowed] = -np.inf
    row[len(allowed) :] = -np.inf


def apply_min_tokens(row: Float32Array, ending_ids: IntArray, *, has_allowed: bool) -> None:
    """Forbid the ids that would end the sequence, unless an allowed set leaves nothing else: it beats min tokens."""
    saved = row[ending_ids]
    row[ending_ids] = -np.inf
    if has_allowed and not np.isfinite(row.max()):
        row[ending_ids] = saved


def apply_bias(row: Float32Array, ids: IntArray, bias: Float32Array) -> None:
    """Add `bias` to the logits of `ids` (each id once); a forbidden id stays forbidden."""
    row[ids] += bias
