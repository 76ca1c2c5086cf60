"""`StepInputs`: what a step's kernels read, at fixed places on the device."""

from __future__ import annotations

import numpy as np
import torch

from octavo.engine.plan import SlotWork
from octavo.engine.runner.device_tables import DeviceTables
from octavo.kernels.attention import AttentionBatch
from octavo.kernels.staging import Staging

FROM_DEVICE = -1


class StepInputs:
    """Owns the inputs of up to `max_rows` rows.

    `rows` int32 [3, n] has each row's slot, position and token id (or `FROM_DEVICE`: the slot's last token); for
    equal n it is always the same memory, so captured steps read it.
    """

    def __init__(self, tables: DeviceTables, max_rows: int) -> None:
        self.tables = tables
        self._staging = Staging(6 * max_rows, tables.device)
        self.token_ids = torch.zeros(max_rows, dtype=torch.int32, device=tables.device)
        self._slot_mapping = [torch.zeros_like(self.token_ids) for _ in tables.block_tables]

    def rows_of(self, num_rows: int) -> torch.Tensor:
        """The device's `rows` of a step of `num_rows` rows."""
        return self._staging.device_buffer[: 3 * num_rows].view(3, num_rows)

    def set_decode(self, slots: list[int], positions: list[int], num_rows: int) -> list[AttentionBatch]:
        """One row per slot, padded to `num_rows`; tokens come from the device."""
        missing = num_rows - len(slots)
        slots = slots + [self.tables.padding_slot] * missing
        positions = positions + [0] * missing
        rows = self._staging.begin()[: 3 * num_rows].reshape(3, num_rows)
        rows[0], rows[1], rows[2] = slots, positions, FROM_DEVICE
        self._staging.send(3 * num_rows)
        return self._batches(slots, [1] * num_rows, [p + 1 for p in positions])

    def set_mixed(self, work: list[SlotWork]) -> tuple[list[AttentionBatch], torch.Tensor, torch.Tensor]:
        """The rows of `work`, and of the sampled ones: slot and position int32 [2, m], row indices int32 [m]."""
        slots = np.array([w.slot for w in work], dtype=np.int32)
        starts = np.array([w.start for w in work], dtype=np.int32)
        lens = np.array([w.num_tokens for w in work], dtype=np.int32)
        ends = np.cumsum(lens, dtype=np.int32)
        num_rows = int(ends[-1])
        is_sampled = np.array([w.is_sampled for w in work], dtype=bool)
        num_sampled = int(is_sampled.sum())
        buffer = self._staging.begin()
        rows = buffer[: 3 * num_rows].reshape(3, num_rows)
        rows[0] = np.repeat(slots, lens)
        rows[1] = np.arange(num_rows, dtype=np.int32) + np.repeat(starts - (ends - lens), lens)
        rows[2] = np.concatenate([self._known(w) for w in work])
        sampled = buffer[3 * num_rows :][: 3 * num_sampled].reshape(3, num_sampled)
        sampled[0], sampled[1] = slots[is_sampled], (starts + lens - 1)[is_sampled]
        sampled[2] = ends[is_sampled] - 1
        on_device = self._staging.send(3 * (num_rows + num_sampled))[3 * num_rows :].view(3, num_sampled)
        batches = self._batches([w.slot for w in work], lens.tolist(), (starts + lens).tolist())
        return batches, on_device[:2], on_device[2]

    def _known(self, work: SlotWork) -> np.ndarray:
        known = self.tables.known_np[work.slot]
        if work.start < len(known):
            return known[work.start : work.start + work.num_tokens]
        return np.full(work.num_tokens, FROM_DEVICE, dtype=np.int32)

    def gather(self, num_rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Launch what turns `rows` into token ids and cache slots; token ids and positions, int32 [num_rows]."""
        from octavo.kernels.triton.slot import gather_inputs

        rows = self.rows_of(num_rows)
        for table, mapping in zip(self.tables.block_tables, self._slot_mapping, strict=True):
            gather_inputs(rows, self.tables.last_tokens, table, self.tables.block_size, self.token_ids, mapping)
        return self.token_ids[:num_rows], rows[1]

    def _batches(self, slots: list[int], lens: list[int], contexts: list[int]) -> list[AttentionBatch]:
        num_rows = sum(lens)
        return [
            AttentionBatch(None, None, table, mapping[:num_rows], lens, contexts, table_rows_host=slots)
            for table, mapping in zip(self.tables.block_tables, self._slot_mapping, strict=True)
        ]
