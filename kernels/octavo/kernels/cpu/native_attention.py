"""`cpu`: paged attention in C++ (csrc/attention.h), whose rows have the same bits in every batch."""

from __future__ import annotations

import ctypes
from itertools import accumulate
from typing import ClassVar

import torch

from octavo.kernels.attention import AttentionBackend, AttentionBatch, AttentionSpec, HeadNorm, Rotary
from octavo.kernels.cpu import native

DTYPES = (torch.float32, torch.bfloat16)
BLOCK_SIZES = (16, 32, 64, 128)
HEAD_STEP = 16


class CpuAttention(AttentionBackend):
    """q, k, v and out may be float32 or bfloat16, each with its heads side by side; float32 is not copied."""

    name: ClassVar[str] = "cpu"
    is_batch_invariant: ClassVar[bool] = True
    has_rotary: ClassVar[bool] = True
    has_layer_call: ClassVar[bool] = True

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        self._call = native.AttentionCall(
            num_heads=spec.num_heads,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            block_size=spec.block_size,
            window=spec.window,
            scale=spec.scale,
            is_bf16=spec.kv_dtype == torch.bfloat16,
        )
        page = spec.block_size * spec.head_dim
        self._inner = (spec.num_kv_heads * page, page, spec.head_dim, 1)
        self._held: tuple[torch.Tensor, ...] = ()

    @classmethod
    def validate(cls, spec: AttentionSpec) -> list[str]:
        reasons = []
        if not spec.device.startswith("cpu"):
            reasons.append(f"it runs on cpu, not on {spec.device}")
        elif native.library() is None:
            reasons.append("the C++ kernels are not there")
        if spec.num_heads % spec.num_kv_heads:
            reasons.append(f"{spec.num_heads} heads cannot share {spec.num_kv_heads} KV heads evenly")
        for what, dtype in (("dtype", spec.dtype), ("KV dtype", spec.kv_dtype)):
            if dtype not in DTYPES:
                reasons.append(f"{what} {dtype} is not one of {', '.join(str(d) for d in DTYPES)}")
        if spec.block_size not in BLOCK_SIZES:
            reasons.append(f"block size {spec.block_size} is not one of {', '.join(map(str, BLOCK_SIZES))}")
        if spec.head_dim % HEAD_STEP:
            reasons.append(f"head size {spec.head_dim} is not a multiple of {HEAD_STEP}")
        return reasons

    def plan(self, batch: AttentionBatch) -> None:
        lens, contexts = (torch.tensor(n, dtype=torch.int32) for n in (batch.query_lens_host, batch.context_lens_host))
        starts = torch.tensor([0, *accumulate(batch.query_lens_host)], dtype=torch.int32)
        slots, tables = batch.slot_mapping.long().contiguous(), batch.block_tables.long().contiguous()
        # The call holds addresses only: these tensors must live until the next step.
        self._held = (lens, contexts, starts, slots, tables)
        call = self._call
        call.lens, call.contexts, call.starts = lens.data_ptr(), contexts.data_ptr(), starts.data_ptr()
        call.slots, call.tables = slots.data_ptr(), tables.data_ptr()
        call.table_width = tables.shape[1] if tables.dim() == 2 else 0
        call.num_rows, call.num_seqs = slots.shape[0], lens.shape[0]

    def run_rotary(
        self, qkv: torch.Tensor, rotary: Rotary, norm: HeadNorm | None, kv: torch.Tensor, out: torch.Tensor
    ) -> None:
        spec, qkv = self.spec, qkv.float().contiguous()
        k, v = spec.num_heads, spec.num_heads + spec.num_kv_heads
        with_rotary(self._call, rotary, norm)
        try:
            self.run(qkv[:, :k], qkv[:, k:v], qkv[:, v:], kv, out)
        finally:
            self._call.cosines = None

    def layer_call(self, kv: torch.Tensor) -> native.AttentionCall:
        if kv.dtype != self.spec.kv_dtype or kv.stride()[1:] != self._inner:
            raise ValueError(f"a layer's view needs contiguous blocks of {self.spec.kv_dtype}, got {kv.stride()}")
        self._call.kv, self._call.block_stride = kv.data_ptr(), kv.stride(0)
        return self._call

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv: torch.Tensor, out: torch.Tensor) -> None:
        library = native.library()
        assert library is not None, "validate() was asked"
        if not self._call.num_rows:
            return
        q, k, v = _rows(q), _rows(k), _rows(v)
        result = out if out.dtype == torch.float32 and out.is_contiguous() else torch.empty(out.shape)
        call = self.layer_call(kv)
        call.q, call.k, call.v, call.out = (t.data_ptr() for t in (q, k, v, result))
        call.ldq, call.ldk, call.ldv = q.stride(0), k.stride(0), v.stride(0)
        library.octavo_attention(ctypes.byref(call))
        if result is not out:
            out.copy_(result)


def with_rotary(call: native.AttentionCall, rotary: Rotary, norm: HeadNorm | None) -> None:
    """Make a call turn q and k, and norm them where there is a norm.  The caller holds tables and norms, float32."""
    call.cosines, call.sines = rotary.cos.data_ptr(), rotary.sin.data_ptr()
    call.positions = rotary.positions.data_ptr()
    call.q_norm, call.k_norm = (None, None) if norm is None else (norm.q.data_ptr(), norm.k.data_ptr())
    call.eps = 0.0 if norm is None else norm.eps


def _rows(x: torch.Tensor) -> torch.Tensor:
    """x as float32 with the heads of a row side by side."""
    if x.dtype != torch.float32:
        x = x.float()
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()
