"""`StepInputs`: what a step's kernels read, at fixed places on the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from octavo.engine.plan import SlotWork
from octavo.engine.runner.device_tables import DeviceTables
from octavo.kernels.attention import AttentionBatch
from octavo.kernels.staging import Staging

FROM_DEVICE = -1
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Work:
    """A step's work as arrays [num_items]: slot, first position, number of tokens, and whether it samples."""

    slots: Int64Array
    starts: Int64Array
    lens: Int64Array
    is_sampled: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, work: list[SlotWork]) -> Work:
        rows = np.array([(w.slot, w.start, w.num_tokens, w.is_sampled) for w in work], dtype=np.int64).reshape(-1, 4)
        return cls(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3] > 0)

    @property
    def num_rows(self) -> int:
        return int(self.lens.sum())


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

    def set_decode(self, slots: Int64Array, positions: Int64Array, num_rows: int) -> list[AttentionBatch]:
        """One row per slot, padded to `num_rows`; tokens come from the device."""
        num = len(slots)
        rows = self._staging.begin()[: 3 * num_rows].reshape(3, num_rows)
        rows[0, :num], rows[0, num:] = slots, self.tables.padding_slot
        rows[1, :num], rows[1, num:] = positions, 0
        rows[2] = FROM_DEVICE
        all_slots, contexts = rows[0].astype(np.int64), rows[1] + np.int64(1)
        self._staging.send(3 * num_rows)
        return self._batches(all_slots, np.ones(num_rows, dtype=np.int64), contexts, num_rows, num_rows)

    def set_mixed(
        self, work: Work, num_captured_rows: int = 0
    ) -> tuple[list[AttentionBatch], torch.Tensor, torch.Tensor]:
        """The rows of `work`, and of the sampled ones: slot and position int32 [2, m], row indices int32 [m].

        With `num_captured_rows`, rows of nobody follow up to that number.
        """
        num_work = work.num_rows
        num_rows = num_captured_rows or num_work
        ends = np.cumsum(work.lens)
        num_sampled = int(work.is_sampled.sum())
        buffer = self._staging.begin()
        rows = buffer[: 3 * num_rows].reshape(3, num_rows)
        rows[0, :num_work] = np.repeat(work.slots, work.lens)
        rows[1, :num_work] = np.arange(num_work) + np.repeat(work.starts - (ends - work.lens), work.lens)
        rows[2, :num_work] = self._known(work, ends)
        rows[:, num_work:] = [[self.tables.padding_slot], [0], [0]]
        sampled = buffer[3 * num_rows :][: 3 * num_sampled].reshape(3, num_sampled)
        sampled[0] = work.slots[work.is_sampled]
        sampled[1] = (work.starts + work.lens - 1)[work.is_sampled]
        sampled[2] = ends[work.is_sampled] - 1
        on_device = self._staging.send(3 * (num_rows + num_sampled))[3 * num_rows :].view(3, num_sampled)
        batches = self._batches(work.slots, work.lens, work.starts + work.lens, num_rows, num_captured_rows)
        return batches, on_device[:2], on_device[2]

    def _known(self, work: Work, ends: Int64Array) -> npt.NDArray[np.int32]:
        """Each row's token where the host knows it."""
        out = np.full(int(ends[-1]) if len(ends) else 0, FROM_DEVICE, dtype=np.int32)
        for i in np.flatnonzero(work.starts < self.tables.num_known_np[work.slots]).tolist():
            start, num = int(work.starts[i]), int(work.lens[i])
            out[ends[i] - num : ends[i]] = self.tables.known_np[int(work.slots[i])][start : start + num]
        return out

    def gather(self, num_rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Launch what turns `rows` into token ids and cache slots; token ids and positions, int32 [num_rows]."""
        from octavo.kernels.triton.slot import gather_inputs

        rows = self.rows_of(num_rows)
        for table, mapping in zip(self.tables.block_tables, self._slot_mapping, strict=True):
            gather_inputs(rows, self.tables.last_tokens, table, self.tables.block_size, self.token_ids, mapping)
        return self.token_ids[:num_rows], rows[1]

    def _batches(
        self, slots: Int64Array, lens: Int64Array, contexts: Int64Array, num_rows: int, num_captured_rows: int
    ) -> list[AttentionBatch]:
        return [
            AttentionBatch(
                None,
                None,
                table,
                mapping[:num_rows],
                lens,
                contexts,
                table_rows_host=slots,
                num_captured_rows=num_captured_rows,
            )
            for table, mapping in zip(self.tables.block_tables, self._slot_mapping, strict=True)
        ]
