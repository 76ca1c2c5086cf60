"""The engine's stop rules: eos, stop token ids, min and max tokens, the context limit.

Stop *strings* need text and are found where text is made (`octavo.text.output`).
"""

from __future__ import annotations

from typing import NamedTuple

from octavo.request import FINISH_LENGTH, FINISH_STOP
from octavo.sampling_params import SamplingParams


class Stop(NamedTuple):
    """Why a sequence ended; `stop_reason` is the stop token id, None for eos and length."""

    finish_reason: str
    stop_reason: int | None = None


def find_stop(
    token_id: int,
    num_output_tokens: int,
    is_at_limit: bool,
    params: SamplingParams,
    eos_token_ids: frozenset[int],
) -> Stop | None:
    """Whether the output token `token_id`, the `num_output_tokens`-th, ends its sequence.

    `is_at_limit` says that the sequence has reached max_tokens or the context; it ends there even below min_tokens.
    """
    if num_output_tokens >= params.min_tokens:
        if not params.ignore_eos and token_id in eos_token_ids:
            return Stop(FINISH_STOP)
        if token_id in params.stop_token_ids:
            return Stop(FINISH_STOP, token_id)
    return Stop(FINISH_LENGTH) if is_at_limit else None
