"""`StepBatch`: one step's inputs, gathered from the slot tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from octavo.engine.plan import SlotWork
from octavo.engine.runner.slots import SlotTables
from octavo.kernels.attention import AttentionBatch


@dataclass
class StepBatch:
    """Rows are the tokens of `work`, one item after the other.

    `token_ids` and `positions` [num_rows]; `sampled_rows` the last row of each item that samples; `groups` has one
    attention batch per group.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    sampled_rows: torch.Tensor
    groups: list[AttentionBatch]


def make_batch(tables: SlotTables, work: list[SlotWork]) -> StepBatch:
    """Inputs for `work`, whose slots are filled and hold the tokens asked for."""
    device = tables.device
    slots_np = np.array([w.slot for w in work], dtype=np.int64)
    starts_np = np.array([w.start for w in work], dtype=np.int64)
    lens_np = np.array([w.num_tokens for w in work], dtype=np.int64)
    row_starts_np = np.concatenate(([0], np.cumsum(lens_np)))
    positions_np = np.arange(row_starts_np[-1]) + np.repeat(starts_np - row_starts_np[:-1], lens_np)
    row_slots_np = np.repeat(slots_np, lens_np)
    contexts_np = starts_np + lens_np
    is_sampled_np = np.array([w.is_sampled for w in work], dtype=bool)

    def to_device(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    positions, slots, row_slots = to_device(positions_np), to_device(slots_np), to_device(row_slots_np)
    token_ids = tables.token_ids.view(-1).index_select(0, row_slots * tables.max_len + positions)
    block_idx, offset = positions // tables.block_size, positions % tables.block_size
    num_columns = int(-(-contexts_np.max() // tables.block_size))
    query_starts, context_lens = to_device(row_starts_np), to_device(contexts_np)
    groups = [
        AttentionBatch(
            query_starts=query_starts,
            context_lens=context_lens,
            block_tables=table.index_select(0, slots)[:, :num_columns],
            slot_mapping=table[row_slots, block_idx] * tables.block_size + offset,
            query_lens_host=lens_np.tolist(),
            context_lens_host=contexts_np.tolist(),
        )
        for table in tables.block_tables
    ]
    return StepBatch(token_ids, positions, to_device(row_starts_np[1:][is_sampled_np] - 1), groups)
