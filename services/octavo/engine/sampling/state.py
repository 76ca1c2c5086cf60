"""`SamplerState`: what choosing a sequence's next token needs to know of the sequence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from octavo.engine.sampling.mask import BoolArray
from octavo.engine.sampling.penalty import TokenCounts, has_penalty
from octavo.sampling_params import SamplingParams


class SamplerState:
    """One sequence's settings and the facts of its history that they refer to.

    Built from the ids known at admission (so a resumed or preempted sequence gets the same state as one that never
    stopped) and told each further output by `append`.  Ids outside the vocabulary are left out, so that no settings can
    make `sample` raise.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
        sequence: int,
        eos_token_ids: Iterable[int],
        vocab_size: int,
    ) -> None:
        self.params = params
        self.sequence = sequence
        self.num_prompt_tokens = len(prompt_token_ids)
        self.num_output_tokens = len(output_token_ids)
        self.allowed: BoolArray | None = None
        ending = set(params.stop_token_ids) | (set() if params.ignore_eos else set(eos_token_ids))
        self.ending_ids = np.array(sorted(t for t in ending if 0 <= t < vocab_size), dtype=np.int64)
        bias = sorted((t, b) for t, b in params.logit_bias.items() if 0 <= t < vocab_size)
        self.bias_ids = np.array([t for t, _ in bias], dtype=np.int64)
        self.bias = np.array([b for _, b in bias], dtype=np.float32)
        self.counts: TokenCounts | None = None
        if has_penalty(params):
            self.counts = TokenCounts([t for t in prompt_token_ids if 0 <= t < vocab_size], output_token_ids)

    @property
    def position(self) -> int:
        """Absolute position of the token to be chosen."""
        return self.num_prompt_tokens + self.num_output_tokens

    @property
    def must_go_on(self) -> bool:
        """Whether min tokens still forbids the ids that would end the sequence."""
        return self.num_output_tokens < self.params.min_tokens and len(self.ending_ids) > 0

    @property
    def changes_logits(self) -> bool:
        """Whether the raw logits are changed before temperature and filters."""
        return self.allowed is not None or self.must_go_on or len(self.bias_ids) > 0 or self.counts is not None

    def append(self, token_id: int) -> None:
        """Record that `token_id` was put out."""
        self.num_output_tokens += 1
        if self.counts is not None:
            self.counts.add_output(token_id)

    def set_allowed(self, allowed: BoolArray | None) -> None:
        """Restrict the next choice to the ids that are True in `allowed` (bool [≤ vocab]); None lifts it."""
        self.allowed = allowed
