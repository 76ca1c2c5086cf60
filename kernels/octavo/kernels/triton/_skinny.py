"""Products of few rows: what they cost is reading the weight once, so the norm before and what follows ride on them.

Two kernels.  `row_kernel` takes one or two rows with plain multiply-adds: a program holds BLOCK_N rows of the weight.
`tile_kernel` takes up to 16 rows through the matrix units, the weight cut along K into SPLIT parts where there are too
few outputs for the device; the program that finishes last adds the parts in ascending order.

Optional parts of both: x is RMS-normed, in that its columns are scaled on the way in and its rows at the end; the
weight holds gate rows, then up rows, and the result is silu(gate) · up; a residual is added.  With IS_CHAINED,
`row_kernel` is launched while the kernel before it ends: it reads the weight first, and waits before it touches
anything else.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def row_kernel(
    x,  # [M, K], row stride stride_x
    norm,  # [K]
    weight,  # [N, K], with IS_GATED [2 N, K]
    bias,  # [N]
    residual,  # [M, N]
    out,  # [M, N]
    eps,
    num_outputs,
    stride_x,
    M: tl.constexpr,
    K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    HAS_NORM: tl.constexpr,
    IS_GATED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    IS_CHAINED: tl.constexpr,
):
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    is_column = column < num_outputs
    lane = tl.arange(0, M)
    base = weight + column.to(tl.int64)[:, None] * K
    at = tl.arange(0, BLOCK_K)
    is_cell = is_column[:, None] & (at < K)[None, :]
    # The first part of the weight is on its way before the wait.
    w = tl.load(base + at[None, :], mask=is_cell, other=0.0)
    u = w
    if IS_GATED:
        u = tl.load(base + num_outputs.to(tl.int64) * K + at[None, :], mask=is_cell, other=0.0)
    if IS_CHAINED:
        gdc_wait()
        gdc_launch_dependents()
    acc = tl.zeros([M, BLOCK_N], tl.float32)
    up = tl.zeros([M, BLOCK_N], tl.float32)
    square = tl.zeros([M], tl.float32)
    for start in tl.static_range(0, K, BLOCK_K):
        if start > 0:
            here = start + at
            is_cell = is_column[:, None] & (here < K)[None, :]
            w = tl.load(base + here[None, :], mask=is_cell, other=0.0)
            if IS_GATED:
                u = tl.load(base + num_outputs.to(tl.int64) * K + here[None, :], mask=is_cell, other=0.0)
        for m in tl.static_range(M):
            v = tl.load(x + m * stride_x + start + at, mask=start + at < K, other=0.0).to(tl.float32)
            if HAS_NORM:
                square += tl.where(lane == m, tl.sum(v * v, 0), 0.0)
                v = v * tl.load(norm + start + at, mask=start + at < K, other=0.0).to(tl.float32)
            acc += tl.where(lane[:, None] == m, tl.sum(w.to(tl.float32) * v[None, :], 1)[None, :], 0.0)
            if IS_GATED:
                up += tl.where(lane[:, None] == m, tl.sum(u.to(tl.float32) * v[None, :], 1)[None, :], 0.0)
    if HAS_NORM:
        scale = tl.rsqrt(square / K + eps)[:, None]
        acc = acc * scale
        up = up * scale
    if IS_GATED:
        acc = acc / (1.0 + tl.exp(-acc)) * up
    if HAS_BIAS:
        acc += tl.load(bias + column, mask=is_column, other=0.0).to(tl.float32)[None, :]
    place = lane[:, None] * num_outputs + column[None, :]
    if HAS_RESIDUAL:
        acc = acc.to(out.dtype.element_ty).to(tl.float32)
        acc += tl.load(residual + place, mask=is_column[None, :], other=0.0).to(tl.float32)
    tl.store(out + place, acc.to(out.dtype.element_ty), mask=is_column[None, :])


@triton.jit
def tile_kernel(
    x,  # [num_rows, K], row stride stride_x
    norm,  # [K]
    weight,  # [N, K], with IS_GATED [2 N, K]
    bias,  # [N]
    residual,  # [num_rows, N]
    out,  # [num_rows, N]
    parts,  # float32 [num_tiles, SPLIT, 2 * 16 * BLOCK_N], with SPLIT > 1
    squares,  # float32 [num_tiles, SPLIT, 16]
    counters,  # int32 [num_tiles], zeros; zeros again at the end
    eps,
    num_rows,
    num_outputs,
    stride_x,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT: tl.constexpr,
    HAS_NORM: tl.constexpr,
    IS_GATED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    tile = tl.program_id(0)
    split = tl.program_id(1)
    column = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    is_column = column < num_outputs
    row = tl.arange(0, ROWS)
    is_row = row < num_rows
    at = tl.arange(0, BLOCK_K)
    base = weight + column.to(tl.int64)[None, :] * K + at[:, None]
    acc = tl.zeros([ROWS, BLOCK_N], tl.float32)
    up = tl.zeros([ROWS, BLOCK_N], tl.float32)
    square = tl.zeros([ROWS], tl.float32)
    for start in range(split * (K // SPLIT), (split + 1) * (K // SPLIT), BLOCK_K):
        v = tl.load(x + row[:, None] * stride_x + start + at[None, :], mask=is_row[:, None], other=0.0)
        w = tl.load(base + start, mask=is_column[None, :], other=0.0)
        if HAS_NORM:
            wide = v.to(tl.float32)
            square += tl.sum(wide * wide, 1)
            v = (wide * tl.load(norm + start + at).to(tl.float32)[None, :]).to(v.dtype)
        acc = tl.dot(v, w, acc, input_precision=PRECISION)
        if IS_GATED:
            u = tl.load(base + num_outputs.to(tl.int64) * K + start, mask=is_column[None, :], other=0.0)
            up = tl.dot(v, u, up, input_precision=PRECISION)
    is_last = True
    if SPLIT > 1:
        cells = row[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        mine = tile * SPLIT + split
        tl.store(parts + mine * (2 * ROWS * BLOCK_N) + cells, acc)
        if IS_GATED:
            tl.store(parts + mine * (2 * ROWS * BLOCK_N) + ROWS * BLOCK_N + cells, up)
        if HAS_NORM:
            tl.store(squares + mine * ROWS + row, square)
        tl.debug_barrier()
        is_last = tl.atomic_add(counters + tile, 1, sem="acq_rel") == SPLIT - 1
    if is_last:
        if SPLIT > 1:
            acc = tl.zeros([ROWS, BLOCK_N], tl.float32)
            up = tl.zeros([ROWS, BLOCK_N], tl.float32)
            square = tl.zeros([ROWS], tl.float32)
            cells = row[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
            for i in tl.static_range(SPLIT):
                one = tile * SPLIT + i
                acc += tl.load(parts + one * (2 * ROWS * BLOCK_N) + cells, cache_modifier=".cg")
                if IS_GATED:
                    up += tl.load(parts + one * (2 * ROWS * BLOCK_N) + ROWS * BLOCK_N + cells, cache_modifier=".cg")
                if HAS_NORM:
                    square += tl.load(squares + one * ROWS + row, cache_modifier=".cg")
            tl.store(counters + tile, 0)
        if HAS_NORM:
            scale = tl.rsqrt(square / K + eps)[:, None]
            acc = acc * scale
            up = up * scale
        if IS_GATED:
            acc = acc / (1.0 + tl.exp(-acc)) * up
        if HAS_BIAS:
            acc += tl.load(bias + column, mask=is_column, other=0.0).to(tl.float32)[None, :]
        place = row[:, None] * num_outputs + column[None, :]
        is_out = is_row[:, None] & is_column[None, :]
        if HAS_RESIDUAL:
            acc = acc.to(out.dtype.element_ty).to(tl.float32)
            acc += tl.load(residual + place, mask=is_out, other=0.0).to(tl.float32)
        tl.store(out + place, acc.to(out.dtype.element_ty), mask=is_out)
