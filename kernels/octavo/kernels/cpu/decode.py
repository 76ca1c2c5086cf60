"""Rows that are alone in their sequence: computed together, (sequence, chunk) pair beside pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from octavo.kernels.attention import AttentionSpec
from octavo.kernels.cpu.merge import CHUNK_TOKENS, HIDDEN, chunk_partial, merge_, num_keys_for, pad_rows, small_row_step
from octavo.kernels.cpu.paging import Int64Array, Paging

MAX_PAIRS = 16
"""(sequence, chunk) pairs of one matrix product: bounds the float32 copy of their keys to what caches hold."""


@dataclass
class Batch:
    """Pairs computed together.  `levels` are the numbers of sequences of each chunk index, in ascending order."""

    levels: list[int]
    num_keys: int
    blocks: Int64Array
    mask: torch.Tensor | None
    index: torch.Tensor | None = None


def first_chunk(position: int, window: int) -> int:
    """The first chunk with a key that the row at `position` sees."""
    return max(0, position - window + 1) // CHUNK_TOKENS if window else 0


class DecodePlan:
    """One row each of up to `MAX_PAIRS` sequences, those with most chunks first."""

    def __init__(self, spec: AttentionSpec, paging: Paging, seqs: Sequence[tuple[int, int]], contexts: list[int]):
        self._spec, self._paging = spec, paging
        self._share = spec.num_heads // spec.num_kv_heads
        rows = [row for _, row in seqs]
        is_run = rows == list(range(rows[0], rows[0] + len(rows)))
        self._rows = slice(rows[0], rows[0] + len(rows)) if is_run else torch.tensor(rows)
        self._positions = np.array([contexts[i] - 1 for i, _ in seqs], dtype=np.int64)
        self._first = np.array([first_chunk(int(p), spec.window) for p in self._positions], dtype=np.int64)
        self._tables = paging.tables[[i for i, _ in seqs]]
        self._num_levels = (self._positions // CHUNK_TOKENS - self._first + 1).tolist()
        self._batches = self._cut()
        self._q = torch.zeros(
            len(rows) * spec.num_kv_heads, pad_rows(self._share, small_row_step(spec.head_dim)), spec.head_dim
        )

    @classmethod
    def groups(
        cls, spec: AttentionSpec, paging: Paging, seqs: list[tuple[int, int]], contexts: list[int]
    ) -> list[DecodePlan]:
        """Plans for `seqs`, (index, row) each."""

        def num_levels(seq: tuple[int, int]) -> int:
            position = contexts[seq[0]] - 1
            return position // CHUNK_TOKENS - first_chunk(position, spec.window)

        ordered = sorted(seqs, key=num_levels, reverse=True)
        return [cls(spec, paging, ordered[i : i + MAX_PAIRS], contexts) for i in range(0, len(ordered), MAX_PAIRS)]

    def _cut(self) -> list[Batch]:
        """Chunk indices in ascending order, as many of them together as `MAX_PAIRS` allows."""
        batches: list[Batch] = []
        level = 0
        while level < self._num_levels[0]:
            start, levels = level, list[int]()
            while level < self._num_levels[0]:
                num_seqs = sum(n > level for n in self._num_levels)
                if levels and sum(levels) + num_seqs > MAX_PAIRS:
                    break
                levels.append(num_seqs)
                level += 1
            batches.append(self._make_batch(start, levels))
        return batches

    def _make_batch(self, start: int, levels: list[int]) -> Batch:
        seqs = np.concatenate([np.arange(n) for n in levels])
        chunks = np.concatenate([self._first[:n] + start + i for i, n in enumerate(levels)])
        positions = self._positions[seqs]
        base = chunks * CHUNK_TOKENS
        num_keys = num_keys_for(int(min(CHUNK_TOKENS, (positions - base).max() + 1)), self._spec.block_size)
        columns = base[:, None] // self._spec.block_size + np.arange(num_keys // self._spec.block_size)
        columns = np.minimum(columns, positions[:, None] // self._spec.block_size)
        blocks = self._tables[seqs[:, None], columns]
        keys = base[:, None] + np.arange(num_keys)
        is_hidden = keys > positions[:, None]
        if self._spec.window:
            is_hidden |= keys <= positions[:, None] - self._spec.window
        mask = None
        if is_hidden.any():
            mask = torch.from_numpy(np.where(is_hidden, np.float32(HIDDEN), np.float32(0)))[:, None, None, :]
        return Batch(levels, num_keys, blocks, mask)

    def run(self, q: torch.Tensor, kv: torch.Tensor, out: torch.Tensor) -> None:
        """Attend this plan's rows of q into `out` (both [num_rows, num_heads, head_dim]); K and V are written."""
        heads, share, dim = self._spec.num_kv_heads, self._share, self._spec.head_dim
        mine = q[self._rows].reshape(-1, share, dim)
        rows = self._q[:, :share]
        rows.copy_(mine)
        rows.mul_(self._spec.scale)
        done: torch.Tensor | None = None
        log_sum: torch.Tensor | None = None
        for batch in self._batches:
            part, part_log_sum = self._attend(batch, kv, needs_log_sum=self._num_levels[0] > 1)
            offset = 0
            for num_seqs in batch.levels:
                end = offset + num_seqs * heads
                if done is None:
                    done, log_sum = part[offset:end], part_log_sum[offset:end] if part_log_sum is not None else None
                else:
                    assert log_sum is not None
                    assert part_log_sum is not None
                    size = num_seqs * heads
                    merge_(done[:size], log_sum[:size], part[offset:end], part_log_sum[offset:end])
                offset = end
        assert done is not None
        out[self._rows] = done[:, :share].reshape(-1, heads * share, dim).to(out.dtype)

    def _attend(
        self, batch: Batch, kv: torch.Tensor, *, needs_log_sum: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if batch.index is None:
            batch.index = self._paging.page_index(batch.blocks, kv)
        keys, values = self._paging.gather(kv, batch.index, batch.num_keys)
        heads = self._spec.num_kv_heads
        if batch.levels == [len(self._num_levels)]:
            q = self._q
        else:
            q = torch.cat([self._q[: n * heads] for n in batch.levels])
        scores = torch.bmm(q, keys.transpose(1, 2))
        if batch.mask is not None:
            scores.view(-1, heads, scores.shape[1], batch.num_keys).add_(batch.mask)
        if needs_log_sum:
            return chunk_partial(scores, values)
        return torch.bmm(torch.softmax(scores, dim=-1), values), None
