"""`triton`: paged attention on GPUs in Triton, for decode, prefill and steps of both."""

from __future__ import annotations

import math
import os
from typing import Any, ClassVar

import numpy as np
import torch

from octavo.kernels.attention import (
    MAX_CAPTURED_PREFILLS,
    AttentionBackend,
    AttentionBatch,
    AttentionSpec,
    HeadNorm,
    Rotary,
)
from octavo.kernels.staging import Staging
from octavo.kernels.triton.platform import chaining, is_installed, next_power_of_2, num_processors
from octavo.kernels.triton.work_list import ITEM_FIELDS, TILE_FIELDS, decode_items, prefill_tiles

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MAX_HEAD_DIM = 256
MAX_ITEMS = 4096
FIRST_TILES = 4096
PROGRAMS_PER_PROCESSOR = 4
TILE_ROWS = 128
TILE_KEYS = 64
STAGES = 4
"""Loads of keys in flight: measured on an H200, as are the numbers above."""


def is_interpreted() -> bool:
    """Whether triton runs kernels on the host (TRITON_INTERPRET=1), for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


class TritonAttention(AttentionBackend):
    """Rows that are alone in their sequence go through the decode kernel, the others through the prefill kernel.

    A plan is arrays at fixed places on the device, so a captured decode step stays right for later plans of as many
    rows.
    """

    name: ClassVar[str] = "triton"
    is_batch_invariant: ClassVar[bool] = False
    has_rotary: ClassVar[bool] = True
    is_capturable: ClassVar[bool] = True

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        device = torch.device(spec.device)
        self._device = device
        self._num_programs = num_processors(device) * PROGRAMS_PER_PROCESSOR
        self._group = spec.num_heads // spec.num_kv_heads
        self._items = Staging((1 + MAX_ITEMS) * ITEM_FIELDS, device)
        self._tile_places: dict[int, Staging] = {}
        self._tiles = self._tiles_for(0)
        self._part_out = torch.empty(MAX_ITEMS, spec.num_heads, spec.head_dim, dtype=torch.float32, device=device)
        self._part_sum = torch.empty(MAX_ITEMS, spec.num_heads, dtype=torch.float32, device=device)
        self._counters = torch.zeros(MAX_ITEMS, spec.num_kv_heads, dtype=torch.int32, device=device)
        self._batch: AttentionBatch | None = None
        self._has_decodes = False
        self._num_tiles = 0
        self._pages: dict[tuple[int, int], Any] = {}

    @classmethod
    def validate(cls, spec: AttentionSpec) -> list[str]:
        reasons = []
        if not is_installed():
            reasons.append("the package triton is not installed")
        if not spec.device.startswith("cuda") and not is_interpreted():
            reasons.append(f"it runs on GPUs, not on {spec.device}")
        if spec.num_heads % spec.num_kv_heads:
            reasons.append(f"{spec.num_heads} heads cannot share {spec.num_kv_heads} KV heads evenly")
        elif spec.num_heads // spec.num_kv_heads > TILE_ROWS:
            reasons.append(f"more than {TILE_ROWS} heads share a KV head")
        if spec.head_dim > MAX_HEAD_DIM or spec.head_dim % 2:
            reasons.append(f"head size {spec.head_dim} is not an even number up to {MAX_HEAD_DIM}")
        for what, dtype in (("dtype", spec.dtype), ("KV dtype", spec.kv_dtype)):
            if dtype not in DTYPES:
                reasons.append(f"{what} {dtype} is not one of {', '.join(str(d) for d in DTYPES)}")
        if spec.block_size not in (16, 32, 64, 128):
            reasons.append(f"block size {spec.block_size} is not one of 16, 32, 64, 128")
        return reasons

    def plan(self, batch: AttentionBatch) -> None:
        self._batch = batch
        lengths = np.asarray(batch.query_lens_host, dtype=np.int64)
        contexts = np.asarray(batch.context_lens_host, dtype=np.int64)
        rows = np.cumsum(lengths) - lengths
        given = batch.table_rows_host
        table_rows = np.arange(len(lengths)) if given is None else np.asarray(given, dtype=np.int64)
        is_decode, is_prefill = lengths == 1, lengths > 1
        num_rows = batch.num_captured_rows
        is_mixed = batch.is_mixed or bool(is_prefill.any())
        self._has_decodes = bool(is_decode.any()) or num_rows > 0
        if self._has_decodes:
            items = decode_items(
                rows[is_decode],
                table_rows[is_decode],
                contexts[is_decode],
                window=self.spec.window,
                num_kv_heads=self.spec.num_kv_heads,
                num_programs=self._num_programs,
                max_items=MAX_ITEMS,
            )
            self._send(self._items, items)
        self._num_tiles = 0
        if is_mixed:
            tokens_per_tile = TILE_ROWS // self._group
            tiles = prefill_tiles(
                rows[is_prefill],
                table_rows[is_prefill],
                lengths[is_prefill],
                contexts[is_prefill],
                tokens_per_tile,
            )
            if num_rows:
                whole = np.zeros((num_rows // tokens_per_tile + MAX_CAPTURED_PREFILLS, TILE_FIELDS), dtype=np.int32)
                whole[: len(tiles)] = tiles
                tiles = whole
            self._num_tiles = len(tiles)
            self._tiles = self._tiles_for(tiles.size)
            self._send(self._tiles, tiles)

    def _tiles_for(self, size: int) -> Staging:
        """The smallest place that takes `size` numbers; captured steps keep theirs."""
        wanted = max(next_power_of_2(size), FIRST_TILES)
        if wanted not in self._tile_places:
            self._tile_places[wanted] = Staging(wanted, self._device)
        return self._tile_places[wanted]

    @staticmethod
    def _send(staging: Staging, array: np.ndarray) -> None:
        staging.begin()[: array.size] = array.reshape(-1)
        staging.send(array.size)

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv: torch.Tensor, out: torch.Tensor) -> None:
        from octavo.kernels.triton._cache import write_kernel

        spec, batch = self.spec, self._planned()
        if len(q):
            k, v = k.contiguous(), v.contiguous()
            write_kernel[(len(k),)](
                k,
                v,
                kv,
                batch.slot_mapping,
                k.stride(0),
                v.stride(0),
                kv.stride(0),
                NUM_KV_HEADS=spec.num_kv_heads,
                HEADS=next_power_of_2(spec.num_kv_heads),
                HEAD_DIM=spec.head_dim,
                DIMS=next_power_of_2(spec.head_dim),
                BLOCK_SIZE=spec.block_size,
            )
        self._attend(q.contiguous(), kv, out)

    def run_rotary(
        self, qkv: torch.Tensor, rotary: Rotary, norm: HeadNorm | None, kv: torch.Tensor, out: torch.Tensor
    ) -> None:
        from octavo.kernels.triton._cache import rotary_kernel

        spec, batch = self.spec, self._planned()
        if len(qkv):
            rotary_kernel[(len(qkv), 2)](
                qkv,
                rotary.positions,
                batch.slot_mapping,
                rotary.cos,
                rotary.sin,
                rotary.cos if norm is None else norm.q,
                rotary.cos if norm is None else norm.k,
                kv,
                0.0 if norm is None else norm.eps,
                qkv.stride(0),
                kv.stride(0),
                NUM_HEADS=spec.num_heads,
                Q_PAD=next_power_of_2(spec.num_heads),
                NUM_KV_HEADS=spec.num_kv_heads,
                KV_PAD=next_power_of_2(spec.num_kv_heads),
                HEAD_DIM=spec.head_dim,
                HALF=next_power_of_2(spec.head_dim // 2),
                DIMS=next_power_of_2(spec.head_dim),
                BLOCK_SIZE=spec.block_size,
                HAS_NORM=norm is not None,
                num_warps=4,
                **chaining(self._device),
            )
        self._attend(qkv, kv, out)

    def _planned(self) -> AttentionBatch:
        assert self._batch is not None, "plan() comes before run()"
        return self._batch

    def _attend(self, q: torch.Tensor, kv: torch.Tensor, out: torch.Tensor) -> None:
        """q [num_rows, num_heads or more, head_dim]."""
        from octavo.kernels.triton._decode import decode_kernel
        from octavo.kernels.triton._prefill import prefill_kernel

        spec, tables = self.spec, self._planned().block_tables
        common: dict[str, Any] = {
            "NUM_KV_HEADS": spec.num_kv_heads,
            "GROUP": self._group,
            "HEAD_DIM": spec.head_dim,
            "DIMS": max(16, next_power_of_2(spec.head_dim)),
            "BLOCK_SIZE": spec.block_size,
            "WINDOW": spec.window,
            "PRECISION": "ieee" if spec.dtype == torch.float32 else "tf32",
            **chaining(self._device),
        }
        is_wide = spec.head_dim * spec.dtype.itemsize > 256
        scale_log2 = spec.scale * math.log2(math.e)
        strides = (q.stride(0), out.stride(0), kv.stride(0), tables.stride(0))
        if self._has_decodes:
            decode_kernel[(self._num_programs,)](
                q,
                kv,
                out,
                self._items.device_buffer,
                tables,
                self._part_out,
                self._part_sum,
                self._counters,
                scale_log2,
                *strides,
                ROWS=max(16, next_power_of_2(self._group)),
                MEMBERS=next_power_of_2(self._group),
                MERGE=16,
                BLOCK_N=TILE_KEYS,
                num_warps=4 if is_wide else 2,
                num_stages=2 if is_wide else STAGES,
                **common,
            )
        if self._num_tiles:
            pages, page_rows = self._pages_of(kv)
            prefill_kernel[(spec.num_kv_heads, self._num_tiles)](
                q,
                kv,
                pages,
                out,
                self._tiles.device_buffer,
                tables,
                scale_log2,
                *strides,
                BLOCK_M=TILE_ROWS,
                BLOCK_N=TILE_KEYS if not is_wide else TILE_KEYS // 2,
                PAGE_ROWS=page_rows,
                num_warps=4 if page_rows else 8,
                num_stages=2 if is_wide else 3,
                **common,
            )

    def _pages_of(self, kv: torch.Tensor) -> tuple[Any, int]:
        """A layer's view for the tensor copy engine, and its rows per block; the view itself and 0 where it cannot."""
        spec = self.spec
        is_whole = spec.head_dim in (64, 128) and spec.block_size >= TILE_KEYS and spec.dtype == spec.kv_dtype
        if not (is_whole and spec.dtype.itemsize == 2 and chaining(self._device)["IS_CHAINED"]):
            return kv, 0
        rows_per_block = kv.stride(0) // spec.head_dim
        key = (kv.data_ptr(), kv.shape[0])
        if key not in self._pages:
            from triton.tools.tensor_descriptor import TensorDescriptor

            num_rows = (kv.shape[0] - 1) * rows_per_block + 2 * spec.num_kv_heads * spec.block_size
            rows = torch.as_strided(kv, (num_rows, spec.head_dim), (spec.head_dim, 1), kv.storage_offset())
            self._pages[key] = TensorDescriptor.from_tensor(rows, [TILE_KEYS, spec.head_dim])
        return self._pages[key], rows_per_block
