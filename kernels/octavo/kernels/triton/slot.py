"""The kernels around a step, launched."""

from __future__ import annotations

import torch

from octavo.kernels.triton._slot import apply_kernel, gather_kernel

_BLOCK = 256


def apply_updates(state: torch.Tensor, updates: torch.Tensor) -> None:
    """state[i] = v for the pairs of `updates` int32 [2, num_updates] (indices, values); each index comes once."""
    num_updates = updates.shape[1]
    if num_updates:
        apply_kernel[(-(-num_updates // _BLOCK),)](state, updates, num_updates, BLOCK=_BLOCK)


def gather_inputs(
    rows: torch.Tensor,
    last_tokens: torch.Tensor,
    table: torch.Tensor,
    block_size: int,
    token_ids: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Token ids and cache slots of a step's rows.

    rows int32 [3, num_rows]: each row's slot, position, and token id (-1: the slot's last token, of `last_tokens`
    [num_slots]); table int32 [num_slots, max_blocks] of one group.  Writes token_ids and slots, int32 [num_rows].
    """
    num_rows = rows.shape[1]
    if num_rows:
        gather_kernel[(-(-num_rows // _BLOCK),)](
            rows, last_tokens, table, token_ids, slots, num_rows, table.stride(0), BLOCK_SIZE=block_size, BLOCK=_BLOCK
        )
