"""Prefill attention: tiles of query tokens of one sequence, through the block table.

A tile's rows are its tokens times the query heads that share a KV head.  Keys before the tile's first token need no
mask, and are fetched by the tensor copy engine where that can be; the diagonal follows.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

TILE_FIELDS = tl.constexpr(4)


@triton.jit
def _attend(
    state_peak, state_total, state_acc, rows, kv, pages, table, head, start, end, last, positions, scale_log2,
    stride_block, NUM_KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, DIMS: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    BLOCK_N: tl.constexpr, WINDOW: tl.constexpr, HAS_MASK: tl.constexpr, PAGE_ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Fold the keys [start, end) into the running softmax of `rows`; a key below `last` may be read."""
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIMS)
    half = NUM_KV_HEADS * BLOCK_SIZE * HEAD_DIM
    for at in range(start, end, BLOCK_N):
        keys = at + offs_n
        if BLOCK_SIZE >= BLOCK_N:
            block = tl.load(table + at // BLOCK_SIZE).to(tl.int64)
            place = block * stride_block + (head * BLOCK_SIZE + at % BLOCK_SIZE) * HEAD_DIM
            k_ptrs = kv + place + (offs_n[:, None] * HEAD_DIM + offs_d[None, :])
        else:
            if HAS_MASK:
                blocks = tl.load(table + keys // BLOCK_SIZE, mask=keys < last, other=0).to(tl.int64)
            else:
                blocks = tl.load(table + keys // BLOCK_SIZE).to(tl.int64)
            place = blocks * stride_block + (head * BLOCK_SIZE + keys % BLOCK_SIZE) * HEAD_DIM
            k_ptrs = kv + place[:, None] + offs_d[None, :]
        if PAGE_ROWS > 0 and not HAS_MASK:
            first = tl.load(table + at // BLOCK_SIZE) * PAGE_ROWS + head * BLOCK_SIZE + at % BLOCK_SIZE
            k = pages.load([first, 0])
            v = pages.load([first + NUM_KV_HEADS * BLOCK_SIZE, 0])
        elif HAS_MASK or DIMS > HEAD_DIM:
            is_value = (keys < last)[:, None] & (offs_d < HEAD_DIM)[None, :]
            k = tl.load(k_ptrs, mask=is_value, other=0.0)
            v = tl.load(k_ptrs + half, mask=is_value, other=0.0)
        else:
            k = tl.load(k_ptrs)
            v = tl.load(k_ptrs + half)
        scores = tl.dot(rows, tl.trans(k).to(rows.dtype), input_precision=PRECISION)
        if HAS_MASK:
            is_seen = keys[None, :] <= positions[:, None]
            if WINDOW > 0:
                is_seen = is_seen & (keys[None, :] > positions[:, None] - WINDOW)
            scores = tl.where(is_seen, scores, float("-inf"))
        new_peak = tl.maximum(state_peak, tl.max(scores, 1) * scale_log2)
        shift = new_peak
        if WINDOW > 0:
            shift = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        weights = tl.exp2(scores * scale_log2 - shift[:, None])
        shrink = tl.exp2(state_peak - shift)
        state_total = state_total * shrink + tl.sum(weights, 1)
        state_acc = state_acc * shrink[:, None]
        state_acc = tl.dot(weights.to(rows.dtype), v.to(rows.dtype), state_acc, input_precision=PRECISION)
        state_peak = new_peak
    return state_peak, state_total, state_acc


@triton.jit
def prefill_kernel(
    q,  # [num_rows, >= num_heads * HEAD_DIM], row stride stride_q
    kv,  # a layer's view [num_blocks, 2, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM], block stride stride_block
    pages,  # with PAGE_ROWS: the view as a tensor descriptor of rows [HEAD_DIM], PAGE_ROWS of them from block to block
    out,  # [num_rows, num_heads * HEAD_DIM]
    tiles,  # int32 [num_tiles, 4]: first row, number of tokens (0: no tile), position of the first, table row
    tables,  # int32 [num_table_rows, stride_table]
    scale_log2,
    stride_q,
    stride_out,
    stride_block,
    stride_table,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WINDOW: tl.constexpr,
    PAGE_ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
    IS_CHAINED: tl.constexpr,
):
    if IS_CHAINED:
        gdc_wait()
        gdc_launch_dependents()
    head = tl.program_id(0)
    record = tiles + tl.program_id(1) * TILE_FIELDS
    row = tl.load(record).to(tl.int64)
    num_tokens = tl.load(record + 1)
    if num_tokens == 0:
        return
    position = tl.load(record + 2)
    table = tables + tl.load(record + 3).to(tl.int64) * stride_table
    offs_m = tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, DIMS)
    token = offs_m // GROUP
    cell = (head * GROUP + offs_m % GROUP) * HEAD_DIM
    is_cell = (token < num_tokens)[:, None] & (offs_d < HEAD_DIM)[None, :]
    q_ptrs = q + (row + token)[:, None] * stride_q + cell[:, None] + offs_d[None, :]
    rows = tl.load(q_ptrs, mask=is_cell, other=0.0)
    positions = position + tl.minimum(token, num_tokens - 1)
    last = position + num_tokens
    peak = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, DIMS], tl.float32)
    start = 0
    if WINDOW > 0:
        start = tl.maximum(position - WINDOW + 1, 0) // BLOCK_N * BLOCK_N
        middle = start
    else:
        middle = (position + 1) // BLOCK_N * BLOCK_N
        peak, total, acc = _attend(
            peak, total, acc, rows, kv, pages, table, head, start, middle, last, positions, scale_log2, stride_block,
            NUM_KV_HEADS, HEAD_DIM, DIMS, BLOCK_SIZE, BLOCK_N, WINDOW, False, PAGE_ROWS, PRECISION,
        )  # fmt: skip
    peak, total, acc = _attend(
        peak, total, acc, rows, kv, pages, table, head, middle, last, last, positions, scale_log2, stride_block,
        NUM_KV_HEADS, HEAD_DIM, DIMS, BLOCK_SIZE, BLOCK_N, WINDOW, True, PAGE_ROWS, PRECISION,
    )  # fmt: skip
    out_ptrs = out + (row + token)[:, None] * stride_out + cell[:, None] + offs_d[None, :]
    tl.store(out_ptrs, (acc / total[:, None]).to(out.dtype.element_ty), mask=is_cell)
