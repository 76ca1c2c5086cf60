"""Chunks of keys: their size, and how the partial results of chunks come together."""

from __future__ import annotations

from functools import lru_cache

import torch

CHUNK_TOKENS = 256
"""Keys of one chunk; chunk i holds the absolute positions [256 i, 256 (i + 1))."""

KEY_STEP = 64
"""Hidden keys at the end of a chunk are left out in steps of this many (or of a block, when that is larger)."""

ROW_STEP = 16
"""Query rows of one matrix product are a multiple of this."""

HIDDEN = -1e30
"""Added to the score of a hidden key: finite, so that a chunk without a visible key still gives finite numbers."""


def pad_rows(num_rows: int, step: int = ROW_STEP) -> int:
    """`num_rows` rounded up to a multiple of `step`."""
    return -(-num_rows // step) * step


@lru_cache
def small_row_step(head_dim: int) -> int:
    """The least of 4, 8 and `ROW_STEP` rows for which products have the bits of larger ones, tried on this machine.

    The BLAS has kernels of its own for few rows; from how many on it keeps the order of its sums depends on the sizes
    (measured: 4 up to 80 dimensions, 8 up to 128, then 12).  Fewer rows halve the cost of decode.
    """
    generator = torch.Generator().manual_seed(2)
    q = torch.randn(3, 4 * ROW_STEP, head_dim, generator=generator)
    keys = torch.randn(3, CHUNK_TOKENS, head_dim, generator=generator)
    scores = torch.bmm(q, keys.transpose(1, 2))
    weights = torch.softmax(scores * head_dim**-0.5, dim=-1)
    out = torch.bmm(weights, keys)
    for step in (4, 8):
        few = torch.bmm(q[:, :step].contiguous(), keys.transpose(1, 2))
        if torch.equal(few, scores[:, :step]) and torch.equal(
            torch.bmm(weights[:, :step].contiguous(), keys), out[:, :step]
        ):
            return step
    return ROW_STEP


def num_keys_for(num_visible: int, block_size: int) -> int:
    """How many keys of a chunk to compute when the first `num_visible` can be seen by some row."""
    step = max(KEY_STEP, block_size)
    return min(CHUNK_TOKENS, -(-num_visible // step) * step)


def chunk_partial(scores: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One chunk's result for its rows: output normalised within the chunk, and the log of its sum of exponentials.

    scores float32 [parts, rows, keys], values float32 [parts, keys, head_dim] → [parts, rows, head_dim] and
    [parts, rows, 1].  The highest weight of a softmax is 1 / sum, which gives the sum without another pass.
    """
    weights = torch.softmax(scores, dim=-1)
    log_sum = scores.amax(dim=-1, keepdim=True) - weights.amax(dim=-1, keepdim=True).log()
    return torch.bmm(weights, values), log_sum


def merge_(out: torch.Tensor, log_sum: torch.Tensor, part: torch.Tensor, part_log_sum: torch.Tensor) -> None:
    """Fold the next chunk's partial into `out` and `log_sum`, in place.

    A part whose log-sum is about `HIDDEN` leaves both as they are, bit for bit.
    """
    highest = torch.maximum(log_sum, part_log_sum)
    old, new = (log_sum - highest).exp(), (part_log_sum - highest).exp()
    total = old + new
    out.mul_(old / total).add_(part * (new / total))
    torch.add(highest, total.log(), out=log_sum)
