"""The attention oracle: one sequence at a time, float32 softmax over its whole context, through the block table."""

from __future__ import annotations

from typing import ClassVar

import torch

from octavo.kernels.attention import AttentionBackend, AttentionBatch, AttentionSpec


class ReferenceAttention(AttentionBackend):
    """Plain torch on any device.  Knows neither chunks nor batching, so its rows' bits vary with the split."""

    name: ClassVar[str] = "reference"
    is_batch_invariant: ClassVar[bool] = False

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        self._batch: AttentionBatch | None = None

    @classmethod
    def validate(cls, spec: AttentionSpec) -> list[str]:
        if spec.num_heads % spec.num_kv_heads:
            return [f"{spec.num_heads} heads cannot share {spec.num_kv_heads} KV heads evenly"]
        return []

    def plan(self, batch: AttentionBatch) -> None:
        self._batch = batch

    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv: torch.Tensor, out: torch.Tensor) -> None:
        batch = self._batch
        assert batch is not None, "plan() comes before run()"
        write_reference(batch.slot_mapping, k, v, kv)
        start = 0
        for i, (num_rows, context) in enumerate(zip(batch.query_lens_host, batch.context_lens_host, strict=True)):
            keys, values = gather_reference(kv, batch.block_tables[i], context)
            out[start : start + num_rows] = attend_reference(
                q[start : start + num_rows], keys, values, self.spec.scale, self.spec.window
            )
            start += num_rows


def write_reference(slot_mapping: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv: torch.Tensor) -> None:
    """Put token i's k and v [num_kv_heads, head_dim] at slot `slot_mapping[i]` of a layer's view."""
    block_size = kv.shape[3]
    for row, slot in enumerate(slot_mapping.tolist()):
        block, offset = divmod(slot, block_size)
        kv[block, 0, :, offset] = k[row]
        kv[block, 1, :, offset] = v[row]


def gather_reference(kv: torch.Tensor, table: torch.Tensor, num_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first `num_tokens` keys and values of a block table, each float32 [num_kv_heads, num_tokens, head_dim]."""
    num_blocks = -(-num_tokens // kv.shape[3])
    blocks = kv[table[:num_blocks].long()].float()
    joined = blocks.permute(1, 2, 0, 3, 4).flatten(2, 3)[:, :, :num_tokens]
    return joined[0], joined[1]


def attend_reference(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float, window: int
) -> torch.Tensor:
    """q [num_rows, num_heads, head_dim], the last rows of a context whose keys and values are given → q's shape."""
    num_rows, num_heads, _ = q.shape
    num_tokens = keys.shape[1]
    share = num_heads // keys.shape[0]
    keys, values = keys.repeat_interleave(share, dim=0), values.repeat_interleave(share, dim=0)
    scores = torch.einsum("thd,hkd->htk", q.float(), keys) * scale
    at = torch.arange(num_tokens - num_rows, num_tokens, device=q.device)[:, None]
    key_at = torch.arange(num_tokens, device=q.device)[None, :]
    is_hidden = key_at > at
    if window:
        is_hidden |= key_at <= at - window
    weights = scores.masked_fill(is_hidden, float("-inf")).softmax(dim=-1)
    return torch.einsum("htk,hkd->thd", weights, values).to(q.dtype)
