"""`PagedAttention`: the attention of all groups, as a model calls it."""

from __future__ import annotations

import torch

from octavo.kernels.attention import AttentionBackend, AttentionBatch, HeadNorm, Rotary
from octavo.kernels.cpu.native import AttentionCall
from octavo.kv.layout import KVLayout


class PagedAttention:
    """Owns the KV pool `[num_blocks, layers_of_group, 2, num_kv_heads, block_size, head_dim]`, zeroed at first.

    All groups draw from the one pool; each has a backend, planned once a step and run once per layer.
    """

    def __init__(self, layout: KVLayout, backends: list[AttentionBackend], kv: torch.Tensor) -> None:
        self.kv = kv
        self.has_rotary = all(backend.has_rotary for backend in backends)
        self.has_layer_call = all(backend.has_layer_call for backend in backends)
        self._backends = backends
        self._layers: dict[int, tuple[AttentionBackend, torch.Tensor]] = {}
        for spec, backend in zip(layout.groups, backends, strict=True):
            for index, layer in enumerate(spec.layers):
                self._layers[layer] = (backend, kv[:, index])

    def plan(self, groups: list[AttentionBatch]) -> None:
        """Prepare every group's backend for one step."""
        for backend, group in zip(self._backends, groups, strict=True):
            backend.plan(group)

    def clear_blocks(self, block_ids: list[int]) -> None:
        """Zero blocks that get new owners: what they held, were it not finite, must not reach their rows."""
        if block_ids:
            self.kv.index_fill_(0, torch.tensor(block_ids, device=self.kv.device), 0)

    def copy_blocks(self, sources: list[int], targets: list[int]) -> None:
        """Copy whole blocks, all sources read before any target is written."""
        if sources:
            device = self.kv.device
            found = self.kv.index_select(0, torch.tensor(sources, device=device))
            self.kv.index_copy_(0, torch.tensor(targets, device=device), found)

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        backend, kv = self._layers[layer]
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        backend.run(q, k, v, kv, out)
        return out

    def layer_call(self, layer: int) -> AttentionCall:
        """The layer's part of the planned step, for a layer that is one native call."""
        backend, kv = self._layers[layer]
        return backend.layer_call(kv)

    def attend_rotary(self, layer: int, qkv: torch.Tensor, rotary: Rotary, norm: HeadNorm | None) -> torch.Tensor:
        """As a call, from qkv [num_rows, num_heads + 2 num_kv_heads, head_dim] before norms and rotation."""
        backend, kv = self._layers[layer]
        shape = (qkv.shape[0], backend.spec.num_heads, backend.spec.head_dim)
        out = torch.empty(shape, dtype=qkv.dtype, device=qkv.device)
        backend.run_rotary(qkv, rotary, norm, kv, out)
        return out
