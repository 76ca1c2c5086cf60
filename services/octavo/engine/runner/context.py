"""`PagedAttention`: the attention of all groups, as a model calls it."""

from __future__ import annotations

import torch

from octavo.engine.runner.batch import StepBatch
from octavo.kernels.attention import AttentionBackend
from octavo.kv.layout import KVLayout


class PagedAttention:
    """Owns the KV pool `[num_blocks, layers_of_group, 2, num_kv_heads, block_size, head_dim]`, zeroed at first.

    All groups draw from the one pool; each has a backend, planned once a step and run once per layer.
    """

    def __init__(self, layout: KVLayout, backends: list[AttentionBackend], kv: torch.Tensor) -> None:
        self.kv = kv
        self._backends = backends
        self._layers: dict[int, tuple[AttentionBackend, torch.Tensor]] = {}
        for spec, backend in zip(layout.groups, backends, strict=True):
            for index, layer in enumerate(spec.layers):
                self._layers[layer] = (backend, kv[:, index])

    def plan(self, batch: StepBatch) -> None:
        """Prepare every group's backend for one step."""
        for backend, group in zip(self._backends, batch.groups, strict=True):
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
