"""Kernels between a layer's products: residual and RMS norm, SiLU times up."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def add_rms_norm_kernel(
    x,  # [num_rows, width], row stride stride_x
    residual,  # [num_rows, width], contiguous; with HAS_RESIDUAL it gets residual + x, else it is not used
    weight,  # [width]
    out,  # [num_rows, width], contiguous
    eps,
    stride_x,
    WIDTH: tl.constexpr,
    PAD: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    IS_CHAINED: tl.constexpr,
):
    if IS_CHAINED:
        gdc_wait()
        gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, PAD)
    is_in = at < WIDTH
    value = tl.load(x + row * stride_x + at, mask=is_in, other=0.0)
    if HAS_RESIDUAL:
        stream = residual + row * WIDTH + at
        value = (value.to(tl.float32) + tl.load(stream, mask=is_in, other=0.0).to(tl.float32)).to(value.dtype)
        tl.store(stream, value, mask=is_in)
    value = value.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / WIDTH + eps)
    y = value * scale * tl.load(weight + at, mask=is_in, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + at, y.to(out.dtype.element_ty), mask=is_in)


@triton.jit
def silu_mul_kernel(
    gate_up,  # [num_rows, 2 * WIDTH], contiguous
    out,  # [num_rows, WIDTH], contiguous
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    IS_CHAINED: tl.constexpr,
):
    if IS_CHAINED:
        gdc_wait()
        gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_in = at < WIDTH
    gate = tl.load(gate_up + row * 2 * WIDTH + at, mask=is_in, other=0.0)
    up = tl.load(gate_up + row * 2 * WIDTH + WIDTH + at, mask=is_in, other=0.0)
    x = gate.to(tl.float32)
    x = (x / (1.0 + tl.exp(-x))).to(gate.dtype).to(tl.float32) * up.to(tl.float32)
    tl.store(out + row * WIDTH + at, x.to(out.dtype.element_ty), mask=is_in)
