"""The ops between a layer's products, launched."""

from __future__ import annotations

import torch

from octavo.kernels.triton._layer import add_rms_norm_kernel, silu_mul_kernel
from octavo.kernels.triton.platform import chaining, next_power_of_2

_SILU_BLOCK = 1024


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `octavo.kernels.op.add_rms_norm`; `residual` is changed in place.  Rows of x are contiguous."""
    num_rows, width = x.shape
    out = torch.empty((num_rows, width), dtype=x.dtype, device=x.device)
    if num_rows:
        pad = next_power_of_2(width)
        add_rms_norm_kernel[(num_rows,)](
            x,
            x if residual is None else residual,
            weight,
            out,
            eps,
            x.stride(0),
            WIDTH=width,
            PAD=pad,
            HAS_RESIDUAL=residual is not None,
            num_warps=4 if pad <= 2048 else 8,
            **chaining(x.device),
        )
    return out, x if residual is None else residual


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """As `octavo.kernels.op.silu_mul`."""
    num_rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((num_rows, width), dtype=gate_up.dtype, device=gate_up.device)
    if num_rows:
        grid = (num_rows, -(-width // _SILU_BLOCK))
        silu_mul_kernel[grid](gate_up, out, WIDTH=width, BLOCK=_SILU_BLOCK, num_warps=4, **chaining(out.device))
    return out
