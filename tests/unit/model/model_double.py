"""Doubles for tests of models: communication in threads, attention without a pool."""

from __future__ import annotations

import threading

import torch


class OneRank:
    """A Comm of one rank."""

    rank, size = 0, 1

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


class ThreadRank:
    """One rank of several, each in a thread of its own; sums in rank order."""

    def __init__(self, rank: int, parts: list[torch.Tensor | None], barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, len(parts)
        self._parts, self._barrier = parts, barrier

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        self._parts[self.rank] = tensor
        self._barrier.wait(10)
        total = self._parts[0].clone()
        for part in self._parts[1:]:
            total += part
        self._barrier.wait(10)
        return total


def causal_attention(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention of one whole sequence."""
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
    mask = torch.ones(len(q), len(q), dtype=torch.bool).triu(1)
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(mask, -torch.inf).softmax(-1), v)
