"""Linear layers of one rank: packed columns, rows, and whole ones.

Weights are [out_features, in_features], contiguous until `finish` puts them into the layout that products read fastest.
Column layers keep a slice of every part's outputs; row layers keep a slice of the inputs and add up over the ranks, in
rank order, before the bias.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from octavo.engine.model.weight import WeightSlot, replicated
from octavo.kernels import op

if TYPE_CHECKING:
    from octavo.engine.parallel.comm import Comm


@dataclass(frozen=True)
class Place:
    """Where a model's weights live: precision, device and the ranks that share it."""

    dtype: torch.dtype
    device: torch.device
    comm: Comm

    @property
    def compute_dtype(self) -> torch.dtype:
        """The dtype of activations."""
        return op.compute_dtype(self.dtype, self.device)

    def empty(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def empty_norm(self, size: int) -> torch.Tensor:
        """The weight of a norm, in the dtype of activations."""
        return torch.empty(size, dtype=self.compute_dtype, device=self.device)


class Linear:
    """One rank's matrix and bias."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight: op.Weight = weight
        self.bias = bias

    def finish(self) -> None:
        """Lay out the loaded weight for speed; nothing may be loaded after."""
        self.weight = op.pack_linear(self.loaded)

    @property
    def loaded(self) -> torch.Tensor:
        """The weight as it is loaded, before `finish`."""
        assert isinstance(self.weight, torch.Tensor)
        return self.weight

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return op.linear(x, self.weight, self.bias)

    def fused(
        self,
        x: torch.Tensor,
        *,
        norm: torch.Tensor | None = None,
        eps: float = 0.0,
        residual: torch.Tensor | None = None,
        is_gated: bool = False,
    ) -> torch.Tensor:
        """The product with what is around it; see `octavo.kernels.op.fused_linear`.  Of one rank alone."""
        return op.fused_linear(x, self.weight, self.bias, norm=norm, eps=eps, residual=residual, is_gated=is_gated)


class PackedLinear(Linear):
    """Several linears of one input as one matrix (q, k, v; gate, up), split over the ranks by output."""

    def __init__(self, place: Place, in_features: int, parts: Mapping[str, int], *, has_bias: bool) -> None:
        """`parts` maps each Hugging Face name to its full number of outputs, which the ranks must divide."""
        self._parts = dict(parts)
        self._rank, self._num_ranks = place.comm.rank, place.comm.size
        num_rows = sum(parts.values()) // self._num_ranks
        super().__init__(place.empty(num_rows, in_features), place.empty(num_rows) if has_bias else None)

    def slots(self, prefix: str) -> Iterator[tuple[str, WeightSlot]]:
        """A slot per part; `prefix` is put before each part's name."""
        row, in_features, weight = 0, self.loaded.shape[1], self.loaded
        for name, full in self._parts.items():
            num = full // self._num_ranks
            start = self._rank * num
            yield f"{prefix}{name}.weight", WeightSlot(weight[row : row + num], (full, in_features), 0, start)
            if self.bias is not None:
                yield f"{prefix}{name}.bias", WeightSlot(self.bias[row : row + num], (full,), 0, start)
            row += num


class RowLinear(Linear):
    """A linear whose inputs are split over the ranks; every rank gets the whole output."""

    def __init__(self, place: Place, in_features: int, out_features: int, *, has_bias: bool) -> None:
        self._comm = place.comm
        self._shape = (out_features, in_features)
        weight = place.empty(out_features, in_features // place.comm.size)
        super().__init__(weight, place.empty(out_features) if has_bias else None)

    def slots(self, name: str) -> Iterator[tuple[str, WeightSlot]]:
        start = self._comm.rank * self.loaded.shape[1]
        yield f"{name}.weight", WeightSlot(self.loaded, self._shape, 1, start)
        if self.bias is not None:
            yield f"{name}.bias", replicated(self.bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._comm.size == 1:
            return op.linear(x, self.weight, self.bias)
        out = self._comm.all_reduce(op.linear(x, self.weight))
        return out if self.bias is None else out + self.bias


class WholeLinear(Linear):
    """A linear that every rank holds whole, without bias; `shared` is a weight that belongs to another layer too."""

    def __init__(self, place: Place, in_features: int, out_features: int, shared: torch.Tensor | None = None) -> None:
        super().__init__(place.empty(out_features, in_features) if shared is None else shared, None)

    def slots(self, name: str) -> Iterator[tuple[str, WeightSlot]]:
        yield f"{name}.weight", replicated(self.loaded)


class HeadLinear(WholeLinear):
    """The layer that puts out logits, in float32.

    On CPU the product itself is float32 (with the C++ kernels every product is): one in bfloat16 rounds logits to 8
    bits, so that the likeliest tokens tie and the lowest id wins instead of the best one.
    """

    def finish(self) -> None:
        is_cpu = self.loaded.device.type == "cpu"
        if is_cpu and op.compute_dtype(self.loaded.dtype, "cpu") != torch.float32:
            self.weight = self.loaded.float()
        super().finish()
        self._dtype = torch.float32 if is_cpu else self.weight.dtype

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return op.linear_float32(x.to(self._dtype), self.weight)
