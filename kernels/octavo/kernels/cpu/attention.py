"""`torch_cpu`: paged attention on CPU whose rows have the same bits in every batch.

Keys are cut into chunks of `CHUNK_TOKENS`, anchored at absolute positions.  A query row meets one chunk after the
other: scores by one float32 matrix product over rows padded to a multiple of 16, softmax within the chunk, values by
another product; the chunks' partials merge in ascending order.  A row therefore sees the same recurrence in decode, in
any chunk of a prefill, after a prefix hit, and beside any other row.  (Torch's fused attention differs between prefill
and decode rows, so it is not used.)

Two things keep this exact.  A chunk that a row cannot see contributes a weight of zero, so computing it or leaving it
out gives the same bits.  The matrix products add over keys in ascending order, so hidden keys at the end of a chunk
may be left out (`KEY_STEP`).  `octavo.kernels.self_check` compares both on the machine that it runs on.

Every slot of a block that was never written must hold finite numbers: hidden values are multiplied by zero.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from octavo.kernels.attention import AttentionBackend, AttentionBatch, AttentionSpec
from octavo.kernels.cpu.decode import DecodePlan
from octavo.kernels.cpu.paging import Paging
from octavo.kernels.cpu.prefill import PrefillPlan

DTYPES = (torch.float32, torch.bfloat16)


class TorchCpuAttention(AttentionBackend):
    """Decode rows of all sequences are computed together, prefill rows sequence by sequence."""

    name: ClassVar[str] = "torch_cpu"
    is_batch_invariant: ClassVar[bool] = True

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        self._paging = Paging(spec)
        self._decode: list[DecodePlan] = []
        self._prefill: list[PrefillPlan] = []

    @classmethod
    def validate(cls, spec: AttentionSpec) -> list[str]:
        reasons = []
        if not spec.device.startswith("cpu"):
            reasons.append(f"it runs on cpu, not on {spec.device}")
        if spec.num_heads % spec.num_kv_heads:
            reasons.append(f"{spec.num_heads} heads cannot share {spec.num_kv_heads} KV heads evenly")
        for what, dtype in (("dtype", spec.dtype), ("KV dtype", spec.kv_dtype)):
            if dtype not in DTYPES:
                reasons.append(f"{what} {dtype} is not one of {', '.join(str(d) for d in DTYPES)}")
        if spec.block_size not in (16, 32, 64, 128):
            reasons.append(f"block size {spec.block_size} is not one of 16, 32, 64, 128")
        return reasons

    def plan(self, batch: AttentionBatch) -> None:
        self._paging.plan(batch)
        decode, self._prefill = [], []
        row = 0
        for i, num_rows in enumerate(batch.query_lens_host):
            if num_rows == 1:
                decode.append((i, row))
            elif num_rows > 1:
                self._prefill.append(PrefillPlan(self.spec, self._paging, i, row, num_rows, batch.context_lens_host[i]))
            row += num_rows
        self._decode = DecodePlan.groups(self.spec, self._paging, decode, list(batch.context_lens_host))

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv: torch.Tensor, out: torch.Tensor) -> None:
        self._paging.write(k, v, kv)
        for decode in self._decode:
            decode.run(q, kv, out)
        for prefill in self._prefill:
            prefill.run(q, kv, out)
