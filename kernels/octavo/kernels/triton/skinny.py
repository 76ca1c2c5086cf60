"""Products of few rows with their norm, activation and residual, launched."""

from __future__ import annotations

from typing import Any

import torch

from octavo.kernels.triton._skinny import row_kernel, tile_kernel
from octavo.kernels.triton.platform import chaining

MAX_ROW_ROWS = 2
MAX_TILE_ROWS = 16
BLOCK_N, BLOCK_K, SPLIT = 16, 128, 4
MAX_TILES = 2048


class _Workspace:
    """Partial sums of split products on one device; launches of one stream share it."""

    def __init__(self, device: torch.device) -> None:
        num_parts = MAX_TILES * SPLIT
        self.parts = torch.empty(num_parts * 2 * MAX_TILE_ROWS * BLOCK_N, dtype=torch.float32, device=device)
        self.squares = torch.empty(num_parts * MAX_TILE_ROWS, dtype=torch.float32, device=device)
        self.counters = torch.zeros(MAX_TILES, dtype=torch.int32, device=device)


_WORKSPACES: dict[torch.device, _Workspace] = {}


def can_run(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *, has_norm: bool, is_gated: bool
) -> bool:
    """Whether a kernel here is the fastest way (measured on an H200) and can do it."""
    num_rows, width = x.shape
    if (is_gated and bias is not None) or x.stride(1) != 1 or not weight.is_contiguous():
        return False
    if num_rows <= MAX_ROW_ROWS:
        return True
    num_tiles = -(-weight.shape[0] // BLOCK_N)
    is_plain = not has_norm and not is_gated and width % (BLOCK_K * SPLIT) == 0
    return num_rows <= MAX_TILE_ROWS and is_plain and num_tiles <= MAX_TILES


def fused_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    norm: torch.Tensor | None,
    eps: float,
    residual: torch.Tensor | None,
    is_gated: bool,
) -> torch.Tensor:
    """As `octavo.kernels.op.fused_linear`, where `can_run`."""
    num_rows, width = x.shape
    num_outputs = weight.shape[0] // (2 if is_gated else 1)
    out = torch.empty((num_rows, num_outputs), dtype=x.dtype, device=x.device)
    common: dict[str, Any] = {
        "K": width,
        "HAS_NORM": norm is not None,
        "IS_GATED": is_gated,
        "HAS_BIAS": bias is not None,
        "HAS_RESIDUAL": residual is not None,
    }
    norm = weight if norm is None else norm
    bias = weight if bias is None else bias
    residual = out if residual is None else residual
    if num_rows <= MAX_ROW_ROWS:
        block_n, block_k, num_warps = _row_sizes(num_outputs, width)
        row_kernel[(-(-num_outputs // block_n),)](
            x,
            norm,
            weight,
            bias,
            residual,
            out,
            eps,
            num_outputs,
            x.stride(0),
            M=num_rows,
            BLOCK_N=block_n,
            BLOCK_K=block_k,
            num_warps=num_warps,
            **common,
            **chaining(x.device),
        )
        return out
    if x.device not in _WORKSPACES:
        _WORKSPACES[x.device] = _Workspace(x.device)
    work = _WORKSPACES[x.device]
    tile_kernel[(-(-num_outputs // BLOCK_N), SPLIT)](
        x,
        norm,
        weight,
        bias,
        residual,
        out,
        work.parts,
        work.squares,
        work.counters,
        eps,
        num_rows,
        num_outputs,
        x.stride(0),
        ROWS=MAX_TILE_ROWS,
        BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K,
        SPLIT=SPLIT,
        PRECISION="ieee" if x.dtype == torch.float32 else "tf32",
        num_warps=2,
        num_stages=4,
        **common,
    )
    return out


def _row_sizes(num_outputs: int, width: int) -> tuple[int, int, int]:
    """BLOCK_N, BLOCK_K and warps of `row_kernel` for a weight [num_outputs, width]."""
    if width <= 4096:
        return (2 if num_outputs <= 4096 else 4), 1024, 4
    return 2, 2048, 8
