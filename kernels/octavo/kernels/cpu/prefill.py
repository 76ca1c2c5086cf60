"""Several rows of one sequence: chunk after chunk of its keys, all rows that see the chunk in one product."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from octavo.kernels.attention import AttentionSpec
from octavo.kernels.cpu.decode import first_chunk
from octavo.kernels.cpu.merge import CHUNK_TOKENS, HIDDEN, chunk_partial, merge_, num_keys_for, pad_rows
from octavo.kernels.cpu.paging import Int64Array, Paging


@dataclass
class Chunk:
    """A chunk of keys and the tokens [start, end) of the step, of this sequence, that see some of it.

    `mask` [num_masked tokens · share, num_keys] is for the first tokens: the later ones see every key.
    """

    start: int
    end: int
    num_keys: int
    blocks: Int64Array
    mask: torch.Tensor | None
    index: torch.Tensor | None = None


class PrefillPlan:
    """`num_rows` rows from `row` on, which are the last tokens of sequence `index`."""

    def __init__(self, spec: AttentionSpec, paging: Paging, index: int, row: int, num_rows: int, context: int) -> None:
        self._spec, self._paging = spec, paging
        self._share = spec.num_heads // spec.num_kv_heads
        self._rows = slice(row, row + num_rows)
        self._num_rows = num_rows
        self._base = context - num_rows
        self._last_block = (context - 1) // spec.block_size
        self._table = paging.tables[index]
        chunks = range(first_chunk(self._base, spec.window), (context - 1) // CHUNK_TOKENS + 1)
        self._chunks = [self._plan_chunk(c, context) for c in chunks]
        # A chunk's rows start anywhere and are padded: ROW_STEP - 1 zero rows behind the last one are enough.
        padded = num_rows * self._share + pad_rows(1) - 1
        self._q = torch.zeros(spec.num_kv_heads, padded, spec.head_dim)

    def _plan_chunk(self, chunk: int, context: int) -> Chunk:
        block_size, window = self._spec.block_size, self._spec.window
        key_start = chunk * CHUNK_TOKENS
        key_end = min(key_start + CHUNK_TOKENS, context)
        start = max(0, key_start - self._base)
        end = self._num_rows
        if window:
            end = min(end, key_end - 1 + window - self._base)
        num_keys = num_keys_for(key_end - key_start, block_size)
        columns = key_start // block_size + np.arange(num_keys // block_size)
        blocks = self._table[np.minimum(columns, self._last_block)][None, :]
        num_masked = end - start if window else min(end, key_start + num_keys - 1 - self._base) - start
        return Chunk(start, end, num_keys, blocks, self._mask(start, num_masked, key_start, num_keys))

    def _mask(self, start: int, num_masked: int, key_start: int, num_keys: int) -> torch.Tensor | None:
        if num_masked <= 0:
            return None
        positions = (self._base + start + np.arange(num_masked))[:, None]
        keys = key_start + np.arange(num_keys)
        is_hidden = keys > positions
        if self._spec.window:
            is_hidden |= keys <= positions - self._spec.window
        mask = np.where(is_hidden, np.float32(HIDDEN), np.float32(0))
        return torch.from_numpy(np.repeat(mask, self._share, axis=0))

    def run(self, q: torch.Tensor, kv: torch.Tensor, out: torch.Tensor) -> None:
        """Attend this plan's rows of q into `out` (both [num_rows, num_heads, head_dim]); K and V are written."""
        heads, share, dim, num_rows = self._spec.num_kv_heads, self._share, self._spec.head_dim, self._num_rows
        rows = self._q[:, : num_rows * share].view(heads, num_rows, share, dim)
        rows.copy_(q[self._rows].view(num_rows, heads, share, dim).transpose(0, 1))
        rows.mul_(self._spec.scale)
        done = torch.empty(heads, num_rows * share, dim)
        log_sum = torch.empty(heads, num_rows * share, 1)
        num_done = 0
        for chunk in self._chunks:
            part, part_log_sum = self._attend(chunk, kv)
            start, end = chunk.start * share, chunk.end * share
            old_end = max(start, min(end, num_done))
            if old_end > start:
                merge_(
                    done[:, start:old_end],
                    log_sum[:, start:old_end],
                    part[:, : old_end - start],
                    part_log_sum[:, : old_end - start],
                )
            if end > old_end:
                done[:, old_end:end] = part[:, old_end - start : end - start]
                log_sum[:, old_end:end] = part_log_sum[:, old_end - start : end - start]
                num_done = end
        result = done.view(heads, num_rows, share, dim).transpose(0, 1)
        out[self._rows].view(num_rows, heads, share, dim).copy_(result)

    def _attend(self, chunk: Chunk, kv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if chunk.index is None:
            chunk.index = self._paging.page_index(chunk.blocks, kv)
        keys, values = self._paging.gather(kv, chunk.index, chunk.num_keys)
        start, size = chunk.start * self._share, pad_rows((chunk.end - chunk.start) * self._share)
        scores = torch.bmm(self._q[:, start : start + size], keys.transpose(1, 2))
        if chunk.mask is not None:
            scores[:, : chunk.mask.shape[0]].add_(chunk.mask)
        return chunk_partial(scores, values)
