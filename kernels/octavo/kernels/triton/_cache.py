"""Kernels that write the KV cache: plainly, or together with the norm of q and k and their rotation."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def write_kernel(
    k,  # [num_rows, NUM_KV_HEADS, HEAD_DIM], row stride stride_k
    v,
    kv,  # a layer's view [num_blocks, 2, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM], block stride stride_block
    slots,  # [num_rows]: block * BLOCK_SIZE + offset
    stride_k,
    stride_v,
    stride_block,
    NUM_KV_HEADS: tl.constexpr,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + row).to(tl.int64)
    heads = tl.arange(0, HEADS)
    dims = tl.arange(0, DIMS)
    is_cell = (heads < NUM_KV_HEADS)[:, None] & (dims < HEAD_DIM)[None, :]
    source = heads[:, None] * HEAD_DIM + dims[None, :]
    place = slot // BLOCK_SIZE * stride_block + slot % BLOCK_SIZE * HEAD_DIM
    target = kv + place + heads[:, None] * (BLOCK_SIZE * HEAD_DIM) + dims[None, :]
    x = tl.load(k + row * stride_k + source, mask=is_cell)
    tl.store(target, x.to(kv.dtype.element_ty), mask=is_cell)
    x = tl.load(v + row * stride_v + source, mask=is_cell)
    tl.store(target + NUM_KV_HEADS * BLOCK_SIZE * HEAD_DIM, x.to(kv.dtype.element_ty), mask=is_cell)


@triton.jit
def _turned(heads, norm, cos, sin, eps, NUM: tl.constexpr, PAD: tl.constexpr, HEAD_DIM: tl.constexpr,
            HALF: tl.constexpr, HAS_NORM: tl.constexpr):  # fmt: skip
    """The two halves [PAD, HALF] of NUM heads at `heads`, normed and rotated, in float32."""
    head = tl.arange(0, PAD)
    dims = tl.arange(0, HALF)
    is_dim = dims < HEAD_DIM // 2
    is_cell = (head < NUM)[:, None] & is_dim[None, :]
    cells = head[:, None] * HEAD_DIM + dims[None, :]
    left = tl.load(heads + cells, mask=is_cell, other=0.0)
    right = tl.load(heads + cells + HEAD_DIM // 2, mask=is_cell, other=0.0)
    dtype = left.dtype
    left = left.to(tl.float32)
    right = right.to(tl.float32)
    if HAS_NORM:
        square = tl.sum(left * left, 1) + tl.sum(right * right, 1)
        scale = tl.rsqrt(square / HEAD_DIM + eps)[:, None]
        # Rounded as the norm on its own would leave it.
        left = (left * scale * tl.load(norm + dims, mask=is_dim, other=0.0)[None, :]).to(dtype).to(tl.float32)
        right = right * scale * tl.load(norm + HEAD_DIM // 2 + dims, mask=is_dim, other=0.0)[None, :]
        right = right.to(dtype).to(tl.float32)
    c = tl.load(cos + dims, mask=is_dim, other=0.0).to(tl.float32)[None, :]
    s = tl.load(sin + dims, mask=is_dim, other=0.0).to(tl.float32)[None, :]
    return left * c - right * s, right * c + left * s, cells, is_cell


@triton.jit
def rotary_kernel(
    qkv,  # [num_rows, NUM_HEADS + 2 * NUM_KV_HEADS, HEAD_DIM], row stride stride_qkv; q is rotated in place
    positions,  # [num_rows]
    slots,  # [num_rows]: block * BLOCK_SIZE + offset
    cos,  # [max_len, HEAD_DIM]
    sin,
    q_norm,  # [HEAD_DIM]
    k_norm,
    kv,  # a layer's view [num_blocks, 2, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM], block stride stride_block
    eps,
    stride_qkv,
    stride_block,
    NUM_HEADS: tl.constexpr,
    Q_PAD: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    KV_PAD: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    DIMS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HAS_NORM: tl.constexpr,
    IS_CHAINED: tl.constexpr,
):
    if IS_CHAINED:
        gdc_wait()
        gdc_launch_dependents()
    row = tl.program_id(0).to(tl.int64)
    position = tl.load(positions + row).to(tl.int64)
    heads = qkv + row * stride_qkv
    c = cos + position * HEAD_DIM
    s = sin + position * HEAD_DIM
    if tl.program_id(1) == 0:
        left, right, cells, is_cell = _turned(
            heads, q_norm, c, s, eps, NUM_HEADS, Q_PAD, HEAD_DIM, HALF, HAS_NORM
        )  # fmt: skip
        tl.store(heads + cells, left.to(qkv.dtype.element_ty), mask=is_cell)
        tl.store(heads + cells + HEAD_DIM // 2, right.to(qkv.dtype.element_ty), mask=is_cell)
    else:
        slot = tl.load(slots + row).to(tl.int64)
        target = kv + (slot // BLOCK_SIZE * stride_block + slot % BLOCK_SIZE * HEAD_DIM)
        k_heads = heads + NUM_HEADS * HEAD_DIM
        k_left, k_right, _k_cells, is_k = _turned(
            k_heads, k_norm, c, s, eps, NUM_KV_HEADS, KV_PAD, HEAD_DIM, HALF, HAS_NORM
        )  # fmt: skip
        head = tl.arange(0, KV_PAD)
        half_dims = tl.arange(0, HALF)
        # Rounded to q's precision before the cache's, as without fusion.
        place = head[:, None] * (BLOCK_SIZE * HEAD_DIM) + half_dims[None, :]
        k_left = k_left.to(qkv.dtype.element_ty)
        k_right = k_right.to(qkv.dtype.element_ty)
        tl.store(target + place, k_left.to(kv.dtype.element_ty), mask=is_k)
        tl.store(target + place + HEAD_DIM // 2, k_right.to(kv.dtype.element_ty), mask=is_k)
        dims = tl.arange(0, DIMS)
        is_value = (head < NUM_KV_HEADS)[:, None] & (dims < HEAD_DIM)[None, :]
        v = tl.load(k_heads + NUM_KV_HEADS * HEAD_DIM + head[:, None] * HEAD_DIM + dims[None, :], mask=is_value)
        v_place = NUM_KV_HEADS * BLOCK_SIZE * HEAD_DIM + head[:, None] * (BLOCK_SIZE * HEAD_DIM) + dims[None, :]
        tl.store(target + v_place, v.to(kv.dtype.element_ty), mask=is_value)
