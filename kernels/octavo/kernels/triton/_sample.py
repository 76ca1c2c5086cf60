"""Choosing a token per row: the highest logit, or the highest of scaled logit plus noise.

The noise is `philox4x32-10-gumbel-v1` of the engine's sampler, bit for bit: integers and float64 `+ - * /` alone, each
rounded on its own, so the launch forbids fused multiply-add.
"""

from __future__ import annotations

import triton
import triton.language as tl

LAYOUT_VERSION = tl.constexpr(1)


@triton.jit
def _log(x):
    """The sampler's fixed logarithm of positive normal float64 values."""
    bits = x.to(tl.int64, bitcast=True)
    exponent = ((bits >> 52) - 1023).to(tl.float64)
    f = ((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000).to(tl.float64, bitcast=True)
    is_high = f > 1.4142135623730951
    f = tl.where(is_high, f * 0.5, f)
    exponent = exponent + is_high.to(tl.float64)
    s = (f - 1.0) / (f + 1.0)
    z = s * s
    p = z * 0.09523809523809523
    p = (p + 0.10526315789473684) * z
    p = (p + 0.11764705882352941) * z
    p = (p + 0.13333333333333333) * z
    p = (p + 0.15384615384615385) * z
    p = (p + 0.18181818181818182) * z
    p = (p + 0.2222222222222222) * z
    p = (p + 0.2857142857142857) * z
    p = (p + 0.4) * z
    p = (p + 0.6666666666666666) * z
    p = (p + 2.0) * s
    return exponent * 0.6931471805599453 + p


@triton.jit
def _philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32 with 10 rounds; uint32 tensors."""
    for _ in tl.static_range(10):
        high0 = tl.umulhi(c0, tl.full(c0.shape, 0xD2511F53, tl.uint32))
        low0 = c0 * tl.full(c0.shape, 0xD2511F53, tl.uint32)
        high1 = tl.umulhi(c2, tl.full(c2.shape, 0xCD9E8D57, tl.uint32))
        low1 = c2 * tl.full(c2.shape, 0xCD9E8D57, tl.uint32)
        c0 = high1 ^ c1 ^ k0
        c2 = high0 ^ c3 ^ k1
        c1 = low1
        c3 = low0
        k0 = k0 + tl.full(k0.shape, 0x9E3779B9, tl.uint32)
        k1 = k1 + tl.full(k1.shape, 0xBB67AE85, tl.uint32)
    return c0, c1, c2, c3


@triton.jit
def _noisy(scaled, word):
    uniform = (word.to(tl.float64) + 0.5) * 2.3283064365386963e-10
    return scaled.to(tl.float64) - _log(-_log(uniform))


@triton.jit
def _first_best(value, index, WORST: tl.constexpr):
    """The highest of `value` and the lowest index that has it; both [n]."""
    best = tl.max(value, 0)
    return best, tl.min(tl.where(value == best, index, WORST), 0)


@triton.jit
def peak_kernel(
    logits,  # float32 [num_rows, vocab], row stride stride_logits
    peaks,  # float32 [num_rows, num_parts]; not finite when a value of the part is NaN or +inf
    ids,  # int32 [num_rows, num_parts]: the first id that has the peak
    vocab,
    stride_logits,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row * stride_logits + at, mask=at < vocab, other=float("-inf"))
    is_nan = x != x
    has_nan = tl.max(is_nan.to(tl.int32), 0)
    best, index = _first_best(tl.where(is_nan, float("-inf"), x), at, 2147483647)
    best = tl.where(has_nan > 0, float("nan"), best)
    place = row * tl.num_programs(1) + part
    tl.store(peaks + place, best)
    tl.store(ids + place, index)


@triton.jit
def noise_kernel(
    logits,  # float32 [num_rows, vocab], row stride stride_logits
    rows,  # int32 [2, num_rows]: slot, position of the row's token
    settings,  # int32 [4, num_slots]: bits of the temperature, low and high word of the seed, sequence
    peaks,  # float32 [num_rows, num_parts]
    ids,  # int32 [num_rows, num_parts]; replaced for rows with a temperature
    values,  # float64 [num_rows, num_parts], written for rows with a temperature
    vocab,
    num_rows,
    num_slots,
    stride_logits,
    num_parts,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    slot = tl.load(rows + row)
    temperature = tl.load(settings + slot).to(tl.float32, bitcast=True)
    if temperature > 0.0:
        parts = tl.arange(0, PARTS)
        peak = tl.max(tl.load(peaks + row * num_parts + parts, mask=parts < num_parts, other=float("-inf")), 0)
        quad = part * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
        zeros = (quad * 0).to(tl.uint32)
        c1 = zeros + (tl.load(rows + num_rows + row) + 1).to(tl.uint32)
        c2 = zeros + tl.load(settings + 3 * num_slots + slot).to(tl.uint32)
        k0 = zeros + tl.load(settings + num_slots + slot).to(tl.uint32)
        k1 = zeros + tl.load(settings + 2 * num_slots + slot).to(tl.uint32)
        w0, w1, w2, w3 = _philox(quad.to(tl.uint32), c1, c2, zeros + LAYOUT_VERSION, k0, k1)
        source = logits + row * stride_logits + quad * 4
        best = tl.full([BLOCK // 4], float("-inf"), tl.float64)
        index = quad * 4
        for lane in tl.static_range(4):
            word = w0 if lane == 0 else (w1 if lane == 1 else (w2 if lane == 2 else w3))
            is_in = quad * 4 + lane < vocab
            x = tl.load(source + lane, mask=is_in, other=float("-inf"))
            scaled = tl.div_rn(x - peak, temperature)
            value = _noisy(scaled, word)
            index = tl.where(value > best, quad * 4 + lane, index)
            best = tl.maximum(best, value)
        value, winner = _first_best(best, index, 2147483647)
        tl.store(values + row * num_parts + part, value)
        tl.store(ids + row * num_parts + part, winner)


@triton.jit
def choose_kernel(
    rows,  # int32 [2, num_rows]: slot, position
    settings,  # int32 [4, num_slots]
    peaks,  # float32 [num_rows, num_parts]
    ids,  # int32 [num_rows, num_parts]
    values,  # float64 [num_rows, num_parts]
    last_tokens,  # int32 [num_slots], written
    chosen,  # int32 [num_rows], written: the token, or -1 where the highest logit is not finite
    num_parts,
    PARTS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(rows + row)
    parts = tl.arange(0, PARTS)
    is_in = parts < num_parts
    peak = tl.load(peaks + row * num_parts + parts, mask=is_in, other=float("-inf"))
    is_bad = tl.max(((peak != peak) | (peak == float("inf"))).to(tl.int32), 0)
    is_bad = is_bad | (tl.max(tl.where(peak != peak, float("-inf"), peak), 0) == float("-inf")).to(tl.int32)
    index = tl.load(ids + row * num_parts + parts, mask=is_in, other=2147483647)
    temperature = tl.load(settings + slot).to(tl.float32, bitcast=True)
    if temperature > 0.0:
        value = tl.load(values + row * num_parts + parts, mask=is_in, other=float("-inf"))
    else:
        value = peak.to(tl.float64)
    _, token = _first_best(tl.where(value != value, float("-inf"), value), index, 2147483647)
    tl.store(last_tokens + slot, tl.where(is_bad > 0, 0, token))
    tl.store(chosen + row, tl.where(is_bad > 0, -1, token))
