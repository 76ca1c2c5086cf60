"""Penalties for tokens that have occurred: repetition over prompt and output, frequency and presence over output."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from octavo.sampling_params import SamplingParams

Float32Array = npt.NDArray[np.float32]


class TokenCounts:
    """Which token ids occurred in a sequence, and how often in its output; grows by one token at a time."""

    def __init__(self, prompt_token_ids: Sequence[int], output_token_ids: Sequence[int]) -> None:
        self._ids = np.unique(np.asarray(prompt_token_ids, dtype=np.int64))
        self._num = len(self._ids)
        self._counts = np.zeros(self._num, dtype=np.float32)
        self._rows = {int(t): i for i, t in enumerate(self._ids)}
        for token_id in output_token_ids:
            self.add_output(token_id)

    def add_output(self, token_id: int) -> None:
        row = self._rows.get(token_id)
        if row is None:
            row = self._rows[token_id] = self._num
            self._num += 1
            if row == len(self._ids):
                room = max(16, row)
                self._ids = np.concatenate((self._ids, np.zeros(room, dtype=np.int64)))
                self._counts = np.concatenate((self._counts, np.zeros(room, dtype=np.float32)))
            self._ids[row] = token_id
        self._counts[row] += 1

    def view(self) -> tuple[npt.NDArray[np.int64], Float32Array]:
        """All occurring ids (each once) and their counts in the output."""
        return self._ids[: self._num], self._counts[: self._num]


def has_penalty(params: SamplingParams) -> bool:
    return params.repetition_penalty != 1.0 or params.frequency_penalty != 0.0 or params.presence_penalty != 0.0


def apply_penalties(row: Float32Array, params: SamplingParams, counts: TokenCounts) -> None:
    """Change `row` (float32 [vocab]) in place.

    Repetition divides positive logits by the penalty and multiplies the others; then frequency × count and presence
    are subtracted for the tokens of the output.
    """
    ids, num_output = counts.view()
    values = row[ids]
    if params.repetition_penalty != 1.0:
        factor = np.float32(params.repetition_penalty)
        values = np.where(values > 0, values / factor, values * factor)
    if params.frequency_penalty != 0.0:
        values -= np.float32(params.frequency_penalty) * num_output
    if params.presence_penalty != 0.0:
        values -= np.float32(params.presence_penalty) * (num_output > 0)
    row[ids] = values
