"""The attention backend interface: `validate` a spec, `plan()` once a step, `run()` once a layer.

The KV pool is `kv[num_blocks, layers_of_group, 2, num_kv_heads, block_size, head_dim]`; a backend gets a layer's
strided view `[num_blocks, 2, num_kv_heads, block_size, head_dim]`.  Rows of a step are the query tokens of its
sequences, one sequence after the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from octavo.kernels.cpu.native import AttentionCall

Lengths = list[int] | npt.NDArray[np.integer[Any]]
MAX_CAPTURED_PREFILLS = 64


@dataclass(frozen=True)
class AttentionSpec:
    """What a backend is asked to do, on one rank.  `window` 0 means full attention; `scale` multiplies q·k."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype
    kv_dtype: torch.dtype
    device: str
    scale: float
    window: int = 0
    is_deterministic: bool = True


@dataclass
class AttentionBatch:
    """One step's rows for one group, on the device.

    `query_starts` [num_seqs + 1] are row offsets, `context_lens` [num_seqs] the number of cached tokens after this
    step's write (so the last query row of sequence i is at position context_lens[i] - 1), `block_tables`
    [num_seqs, max_blocks] block ids, `slot_mapping` [num_rows] the flat index block * block_size + offset to write to.
    The `_np`-like host copies of lengths are plain lists, so that planning never waits for the device; a step may have
    them alone.  With
    `table_rows_host`, sequence i has the row `table_rows_host[i]` of `block_tables`, which then has a row per slot.
    `num_captured_rows` above 0: the step is captured, or replayed, with as many rows, of which some may be nobody's; at
    most `MAX_CAPTURED_PREFILLS` sequences have more than one, and none has unless `is_mixed`.
    """

    query_starts: torch.Tensor | None
    context_lens: torch.Tensor | None
    block_tables: torch.Tensor
    slot_mapping: torch.Tensor
    query_lens_host: Lengths
    context_lens_host: Lengths
    table_rows_host: Lengths | None = None
    num_captured_rows: int = 0
    is_mixed: bool = False


@dataclass(frozen=True)
class Rotary:
    """How a step's q and k turn: tables [max_len, head_dim] of cosines and sines, and positions [num_rows]."""

    cos: torch.Tensor
    sin: torch.Tensor
    positions: torch.Tensor


@dataclass(frozen=True)
class HeadNorm:
    """RMS norms over each head of q and k: weights [head_dim]."""

    q: torch.Tensor
    k: torch.Tensor
    eps: float


class AttentionBackend(ABC):
    """One way to compute paged attention for one spec."""

    name: ClassVar[str]
    is_batch_invariant: ClassVar[bool]
    has_rotary: ClassVar[bool] = False
    """Whether `run_rotary` is there."""
    has_layer_call: ClassVar[bool] = False
    """Whether `layer_call` is there."""
    is_capturable: ClassVar[bool] = False
    """Whether a captured step of `run`s stays right for every later `plan` of as many rows."""

    def __init__(self, spec: AttentionSpec) -> None:
        self.spec = spec

    @classmethod
    @abstractmethod
    def validate(cls, spec: AttentionSpec) -> list[str]:
        """Reasons why this backend cannot run `spec`; empty when it can."""

    @abstractmethod
    def plan(self, batch: AttentionBatch) -> None:
        """Prepare one step: everything that depends on lengths, once for all layers."""

    @abstractmethod
    def run(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kv: torch.Tensor, out: torch.Tensor) -> None:
        """Write k, v [num_rows, num_kv_heads, head_dim] into `kv` (a layer's view), attend q through it into `out`.

        q and out are [num_rows, num_heads, head_dim].
        """

    def layer_call(self, kv: torch.Tensor) -> AttentionCall:
        """The planned step for a layer's view `kv`, as a layer in one native call takes it.

        Only where `has_layer_call` is set.  Valid until the next call of any verb.
        """
        raise NotImplementedError(f"{self.name} cannot be part of a native layer")

    def run_rotary(
        self, qkv: torch.Tensor, rotary: Rotary, norm: HeadNorm | None, kv: torch.Tensor, out: torch.Tensor
    ) -> None:
        """As `run`, from `qkv` [num_rows, num_heads + 2 num_kv_heads, head_dim] before norms and rotation.

        `qkv` may be changed.  Only where `has_rotary` is set.
        """
        raise NotImplementedError(f"{self.name} cannot rotate")
