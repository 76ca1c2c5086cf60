"""Kernels around a step: changes of the slot tables, and a step's inputs gathered from them."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def apply_kernel(
    state,  # int32 [n]
    updates,  # int32 [2, num_updates]: indices, then values
    num_updates,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_in = at < num_updates
    index = tl.load(updates + at, mask=is_in, other=0)
    tl.store(state + index, tl.load(updates + num_updates + at, mask=is_in, other=0), mask=is_in)


@triton.jit
def gather_kernel(
    rows,  # int32 [3, num_rows]: slot, position, token id or -1 for the slot's last token
    last_tokens,  # int32 [num_slots]
    table,  # int32 [num_slots, stride_table]: block ids of one group
    token_ids,  # int32 [num_rows], written
    slots,  # int32 [num_rows], written: block * BLOCK_SIZE + offset of the row's token
    num_rows,
    stride_table,
    BLOCK_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_in = at < num_rows
    slot = tl.load(rows + at, mask=is_in, other=0)
    position = tl.load(rows + num_rows + at, mask=is_in, other=0)
    known = tl.load(rows + 2 * num_rows + at, mask=is_in, other=0)
    last = tl.load(last_tokens + slot, mask=is_in & (known < 0), other=0)
    tl.store(token_ids + at, tl.where(known < 0, last, known), mask=is_in)
    block = tl.load(table + slot.to(tl.int64) * stride_table + position // BLOCK_SIZE, mask=is_in, other=0)
    tl.store(slots + at, block * BLOCK_SIZE + position % BLOCK_SIZE, mask=is_in)
