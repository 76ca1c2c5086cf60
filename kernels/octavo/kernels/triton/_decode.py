"""Decode attention: one query row per sequence, split over the sequence's keys.

The work is a list of *items*, each a range of keys of one sequence; a *unit* is an item and a KV head.  A fixed number
of programs takes units in turn, so that a captured launch serves any lengths.  The query heads that share a KV head are
the rows of one matrix product, padded to 16.  A sequence of several items leaves a partial result for each (normalised
within the item, with the base-2 logarithm of its sum); the program that finishes last merges them in ascending order.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

ITEM_FIELDS = tl.constexpr(8)


@triton.jit
def decode_kernel(
    q,  # [num_rows, >= num_heads * HEAD_DIM], row stride stride_q
    kv,  # a layer's view [num_blocks, 2, NUM_KV_HEADS, BLOCK_SIZE, HEAD_DIM], block stride stride_block
    out,  # [num_rows, num_heads * HEAD_DIM]
    items,  # int32 [1 + num_items, 8]: their number; then row, table row, first key, end, context, first item, parts
    tables,  # int32 [num_table_rows, stride_table]
    part_out,  # float32 [max_items, NUM_KV_HEADS, GROUP, HEAD_DIM]
    part_sum,  # float32 [max_items, NUM_KV_HEADS, GROUP]
    counters,  # int32 [max_items, NUM_KV_HEADS], zeros; zeros again at the end
    scale_log2,
    stride_q,
    stride_out,
    stride_block,
    stride_table,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    MEMBERS: tl.constexpr,
    MERGE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    WINDOW: tl.constexpr,
    PRECISION: tl.constexpr,
    IS_CHAINED: tl.constexpr,
):
    if IS_CHAINED:
        gdc_wait()
        gdc_launch_dependents()
    num_units = tl.load(items) * NUM_KV_HEADS
    offs_r = tl.arange(0, ROWS)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, DIMS)
    is_dim = offs_d < HEAD_DIM
    is_cell = (offs_r < GROUP)[:, None] & is_dim[None, :]
    half = NUM_KV_HEADS * BLOCK_SIZE * HEAD_DIM
    for unit in range(tl.program_id(0), num_units, tl.num_programs(0)):
        item = unit // NUM_KV_HEADS
        head = unit % NUM_KV_HEADS
        record = items + (item + 1) * ITEM_FIELDS
        row = tl.load(record).to(tl.int64)
        table = tables + tl.load(record + 1).to(tl.int64) * stride_table
        start = tl.load(record + 2)
        end = tl.load(record + 3)
        context = tl.load(record + 4)
        first_item = tl.load(record + 5)
        num_parts = tl.load(record + 6)
        cells = offs_r[:, None] * HEAD_DIM + offs_d[None, :]
        head_start = head * GROUP * HEAD_DIM
        rows = tl.load(q + row * stride_q + head_start + cells, mask=is_cell, other=0.0)
        peak = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, DIMS], tl.float32)
        for at in range(start, end, BLOCK_N):
            keys = at + offs_n
            is_key = keys < end
            if BLOCK_SIZE >= BLOCK_N:
                block = tl.load(table + at // BLOCK_SIZE).to(tl.int64)
                place = block * stride_block + (head * BLOCK_SIZE + at % BLOCK_SIZE) * HEAD_DIM
                cell = offs_n[:, None] * HEAD_DIM + offs_d[None, :]
                k_ptrs = kv + place + cell
            else:
                blocks = tl.load(table + keys // BLOCK_SIZE, mask=is_key, other=0).to(tl.int64)
                place = blocks * stride_block + (head * BLOCK_SIZE + keys % BLOCK_SIZE) * HEAD_DIM
                k_ptrs = kv + place[:, None] + offs_d[None, :]
            is_value = is_key[:, None] & is_dim[None, :]
            k = tl.load(k_ptrs, mask=is_value, other=0.0)
            v = tl.load(k_ptrs + half, mask=is_value, other=0.0)
            scores = tl.dot(rows, tl.trans(k).to(rows.dtype), input_precision=PRECISION) * scale_log2
            if WINDOW > 0:
                is_key = is_key & (keys > context - 1 - WINDOW)
            scores = tl.where(is_key[None, :], scores, float("-inf"))
            new_peak = tl.maximum(peak, tl.max(scores, 1))
            weights = tl.exp2(scores - new_peak[:, None])
            shrink = tl.exp2(peak - new_peak)
            total = total * shrink + tl.sum(weights, 1)
            acc = acc * shrink[:, None]
            acc = tl.dot(weights.to(rows.dtype), v.to(rows.dtype), acc, input_precision=PRECISION)
            peak = new_peak
        acc = acc / total[:, None]
        out_ptrs = out + row * stride_out + head_start + cells
        if num_parts == 1:
            tl.store(out_ptrs, acc.to(out.dtype.element_ty), mask=is_cell)
        else:
            part = (item * NUM_KV_HEADS + head).to(tl.int64)
            tl.store(part_out + part * GROUP * HEAD_DIM + cells, acc, mask=is_cell)
            tl.store(part_sum + part * GROUP + offs_r, peak + tl.log2(total), mask=offs_r < GROUP)
            # The counter says that all of this program's threads have stored.
            tl.debug_barrier()
            counter = counters + first_item * NUM_KV_HEADS + head
            if tl.atomic_add(counter, 1, sem="acq_rel") == num_parts - 1:
                members = tl.arange(0, MEMBERS)
                merged = tl.zeros([MEMBERS, DIMS], tl.float32)
                weight = tl.zeros([MEMBERS], tl.float32)
                highest = tl.full([MEMBERS], float("-inf"), tl.float32)
                # Several parts at once, since each load waits for the memory.
                for i in range(0, num_parts, MERGE):
                    index = i + tl.arange(0, MERGE)
                    is_part = (index < num_parts)[:, None] & (members < GROUP)[None, :]
                    one = (((first_item + index) * NUM_KV_HEADS + head).to(tl.int64) * GROUP)[:, None] + members[
                        None, :
                    ]
                    s = tl.load(part_sum + one, mask=is_part, other=float("-inf"), cache_modifier=".cg")
                    x = tl.load(
                        part_out + one[:, :, None] * HEAD_DIM + offs_d[None, None, :],
                        mask=is_part[:, :, None] & is_dim[None, None, :],
                        other=0.0,
                        cache_modifier=".cg",
                    )
                    new = tl.maximum(highest, tl.max(s, 0))
                    shift = tl.where(members < GROUP, new, 0.0)
                    shares = tl.exp2(s - shift[None, :])
                    old_share = tl.exp2(highest - shift)
                    merged = merged * old_share[:, None] + tl.sum(x * shares[:, :, None], 0)
                    weight = weight * old_share + tl.sum(shares, 0)
                    highest = new
                spots = out + row * stride_out + head_start + members[:, None] * HEAD_DIM + offs_d[None, :]
                is_spot = (members < GROUP)[:, None] & is_dim[None, :]
                weight = tl.where(members < GROUP, weight, 1.0)
                tl.store(spots, (merged / weight[:, None]).to(out.dtype.element_ty), mask=is_spot)
                tl.store(counter, 0)
