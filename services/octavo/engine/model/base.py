"""What a model file must provide.

A model knows its weights and its layer loop.  It knows nothing of slots, blocks, batches or sampling: attention and the
KV cache are behind the `AttentionContext` that the runner passes in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

import torch

from octavo.engine.model.linear import Linear
from octavo.engine.model.weight import WeightTable
from octavo.kernels.attention import HeadNorm, Rotary
from octavo.kernels.cpu.native import AttentionCall
from octavo.kv.layout import GroupSpec


class AttentionContext(Protocol):
    """One step's attention: writes K/V of the step's tokens into the cache, then attends through the cache."""

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q [num_tokens, num_heads, head_dim], k, v [num_tokens, num_kv_heads, head_dim] → q's shape."""
        ...


@runtime_checkable
class RotaryAttention(AttentionContext, Protocol):
    """A context that can also norm and rotate, in one pass with the write to the cache."""

    has_rotary: bool

    def attend_rotary(self, layer: int, qkv: torch.Tensor, rotary: Rotary, norm: HeadNorm | None) -> torch.Tensor:
        """qkv [num_tokens, num_heads + 2 num_kv_heads, head_dim], given up → [num_tokens, num_heads, head_dim]."""
        ...


@runtime_checkable
class LayerAttention(AttentionContext, Protocol):
    """A context whose attention can be part of a layer that runs in one native call."""

    has_layer_call: bool

    def layer_call(self, layer: int) -> AttentionCall:
        """The layer's part of the step; valid until the next call."""
        ...


class CausalLM(ABC):
    """A decoder-only language model of one rank."""

    vocab_size: int
    num_heads: int
    """Query heads of this rank."""
    num_kv_heads: int
    """KV heads of this rank."""
    head_dim: int
    max_position: int
    """The longest sequence in tokens that this model was made for."""
    groups: tuple[GroupSpec, ...]
    weights: WeightTable
    """Every weight by its Hugging Face name."""

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take every weight by its Hugging Face name, once, and make the model ready to run.

        Raises `InvalidInput` that lists missing, unknown and misshapen ones.
        """
        self.weights.fill(weights)
        self.weights.release()
        for linear in self.linears():
            linear.finish()

    @abstractmethod
    def linears(self) -> Iterable[Linear]:
        """Every linear of this rank."""

    @abstractmethod
    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        attention: AttentionContext,
        beat: Callable[[], None],
    ) -> torch.Tensor:
        """token_ids and positions [num_tokens] → hidden states [num_tokens, hidden]; calls `beat()` between layers."""

    @abstractmethod
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [num_rows, hidden] (the sampled rows only) → float32 logits [num_rows, vocab_size]."""
