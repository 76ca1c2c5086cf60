"""Indices into a paged pool: where a step's tokens are written, and which blocks hold a chunk of keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from octavo.kernels.attention import AttentionBatch, AttentionSpec

Int64Array = npt.NDArray[np.int64]


class Paging:
    """A layer's view `[num_blocks, 2, num_kv_heads, block_size, head_dim]` seen as rows, and one step's row indices.

    A *page* is the `[block_size, head_dim]` of one (block, k|v, head).  In the pool pages follow each other, so page
    (block, kv, head) of a layer is number `block * pages_per_block + kv * num_kv_heads + head` from that layer's start.
    """

    def __init__(self, spec: AttentionSpec) -> None:
        self.spec = spec
        self._page_numel = spec.block_size * spec.head_dim
        self._pages_per_block = 0
        self._write_pages: torch.Tensor | None = None
        self._views: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}
        heads = np.arange(2 * spec.num_kv_heads, dtype=np.int64)
        self._kv_heads = heads.reshape(2, spec.num_kv_heads)
        self.tables: Int64Array = np.zeros((0, 0), dtype=np.int64)
        self._slots: Int64Array = np.zeros(0, dtype=np.int64)

    def plan(self, batch: AttentionBatch) -> None:
        self.tables = batch.block_tables.numpy().astype(np.int64, copy=False)
        self._slots = batch.slot_mapping.numpy().astype(np.int64, copy=False)
        self._write_pages = None

    def views(self, kv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`kv` as tokens [n, head_dim] and as pages [n, block_size * head_dim], both from the layer's start."""
        key = (kv.data_ptr(), kv.shape[0])
        found = self._views.get(key)
        if found is None:
            found = self._views[key] = self._make_views(kv)
        return found

    def _make_views(self, kv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        block_size, head_dim = self.spec.block_size, self.spec.head_dim
        inner = (self.spec.num_kv_heads * self._page_numel, self._page_numel, head_dim, 1)
        if kv.stride()[1:] != inner or kv.stride(0) % self._page_numel:
            raise ValueError(f"a layer's view needs contiguous blocks, got strides {kv.stride()}")
        self._pages_per_block = kv.stride(0) // self._page_numel
        num_pages = (kv.shape[0] - 1) * self._pages_per_block + 2 * self.spec.num_kv_heads
        start = kv.storage_offset()
        tokens = torch.as_strided(kv, (num_pages * block_size, head_dim), (head_dim, 1), start)
        pages = torch.as_strided(kv, (num_pages, self._page_numel), (self._page_numel, 1), start)
        return tokens, pages

    def write(self, k: torch.Tensor, v: torch.Tensor, kv: torch.Tensor) -> None:
        """Put the step's k and v [num_rows, num_kv_heads, head_dim] at their slots."""
        tokens, _ = self.views(kv)
        if self._write_pages is None:
            block, offset = np.divmod(self._slots, self.spec.block_size)
            pages = (block * self._pages_per_block)[:, None, None] + self._kv_heads
            index = pages * self.spec.block_size + offset[:, None, None]
            self._write_pages = torch.from_numpy(index.reshape(-1))
        both = torch.stack((k, v), dim=1).view(-1, self.spec.head_dim)
        tokens.index_copy_(0, self._write_pages, both if both.dtype == tokens.dtype else both.to(tokens.dtype))

    def page_index(self, blocks: Int64Array, kv: torch.Tensor) -> torch.Tensor:
        """Page numbers for `blocks` [num_parts, blocks_per_part], ordered [k|v, part, head, block], flat."""
        self.views(kv)
        pages = (blocks * self._pages_per_block)[None, :, None, :] + self._kv_heads[:, None, :, None]
        return torch.from_numpy(np.ascontiguousarray(pages).reshape(-1))

    def gather(self, kv: torch.Tensor, index: torch.Tensor, num_keys: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and values of `page_index` parts, each float32 [num_parts * num_kv_heads, num_keys, head_dim]."""
        _, pages = self.views(kv)
        found = pages.index_select(0, index)
        if found.dtype != torch.float32:
            found = found.float()
        both = found.view(2, -1, num_keys, self.spec.head_dim)
        return both[0], both[1]
