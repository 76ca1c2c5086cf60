"""`sample()`: one token per row of logits, each row by itself.

Order: raw logprobs, allowed ids, min tokens, logit bias, penalties, temperature, min-p, top-k, top-p, selection.
No operation spans rows, so a row's result has the same bits alone and in any batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from octavo.engine.sampling import filter, logprobs, mask, penalty, select
from octavo.engine.sampling.state import SamplerState
from octavo.errors import ErrorDetail, InternalError, InvalidInput
from octavo.request import TokenLogprobs

Float32Array = npt.NDArray[np.float32]


class Choice:
    """The token chosen for one row.  With `error` set the request fails, and `token_id` is -1."""

    __slots__ = ("error", "logprobs", "token_id")

    def __init__(self, token_id: int, logprobs: TokenLogprobs | None = None, error: ErrorDetail | None = None) -> None:
        self.token_id = token_id
        self.logprobs = logprobs
        self.error = error


def sample(logits_np: Float32Array, states: Sequence[SamplerState]) -> list[Choice]:
    """One choice per row of `logits_np` float32 [num_rows, vocab] (left unchanged), by the state of that row.

    Never raises for what a row or its settings hold: such a row gets an error of its own.  States are not advanced;
    the caller appends the token.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return [_sample_row(row, state) for row, state in zip(logits_np, states, strict=True)]


def _sample_row(raw: Float32Array, state: SamplerState) -> Choice:
    params = state.params
    row = _change_logits(raw, state) if state.changes_logits else raw
    best = select.greedy(row)
    problem = _problem(row[best], state)
    if problem is not None:
        return Choice(-1, error=problem)
    if params.is_greedy:
        token_id = best
    else:
        ids, scaled = filter.survivors(row, params)
        token_id = select.with_noise(
            ids, scaled, seed=params.seed or 0, sequence=state.sequence, position=state.position
        )
    if params.logprobs is None:
        return Choice(token_id)
    return Choice(token_id, logprobs.token_logprobs(raw, token_id, params.logprobs))


def _change_logits(raw: Float32Array, state: SamplerState) -> Float32Array:
    row = raw.copy()
    if state.allowed is not None:
        mask.apply_allowed(row, state.allowed)
    if state.must_go_on:
        mask.apply_min_tokens(row, state.ending_ids, has_allowed=state.allowed is not None)
    if len(state.bias_ids):
        mask.apply_bias(row, state.bias_ids, state.bias)
    if state.counts is not None:
        penalty.apply_penalties(row, state.params, state.counts)
    return row


def _problem(highest: np.float32, state: SamplerState) -> ErrorDetail | None:
    """Why nothing can be chosen from a row with this highest value, if so."""
    if highest == -np.inf:
        return InvalidInput("no token is left to choose from: the allowed ids and the settings exclude all").detail()
    if not np.isfinite(highest):
        return InternalError(f"the model put out a logit of {highest}").detail()
    if not state.params.is_greedy and state.params.seed is None:
        return InternalError("a request reached the sampler without a seed").detail()
    return None
