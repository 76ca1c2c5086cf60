"""The Triton attention backend against a float64 reference, on fresh inputs and poisoned memory."""

from __future__ import annotations

import random
import secrets
from dataclasses import replace

import pytest
import torch

from gpu_kit import DEVICE, DTYPES, TOLERANCE, poisoned, relative_error
from octavo.kernels.attention import AttentionSpec, HeadNorm, Rotary
from octavo.kernels.reference import op as reference
from octavo.kernels.self_check import make_batch
from octavo.kernels.triton.attention import TritonAttention

BASE = AttentionSpec(
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    block_size=16,
    dtype=torch.float32,
    kv_dtype=torch.float32,
    device=str(DEVICE),
    scale=0.25,
)
SPECS = {
    "group-3": BASE,
    "block-64": replace(BASE, num_heads=4, head_dim=32, block_size=64),
    "one-kv-head": replace(BASE, num_heads=3, num_kv_heads=1, head_dim=24, block_size=128),
    "window": replace(BASE, num_heads=2, window=70),
    "narrow-window": replace(BASE, window=5, block_size=64),
}


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
    """The last len(q) tokens of a context, in float64."""
    share = spec.num_heads // spec.num_kv_heads
    k, v = k.double().repeat_interleave(share, 1), v.double().repeat_interleave(share, 1)
    scores = torch.einsum("nhd,thd->hnt", q.double(), k) * spec.scale
    at = torch.arange(len(k) - len(q), len(k), device=q.device)[:, None]
    keys = torch.arange(len(k), device=q.device)[None]
    is_hidden = keys > at
    if spec.window:
        is_hidden |= keys <= at - spec.window
    return torch.einsum("hnt,thd->nhd", scores.masked_fill(is_hidden, float("-inf")).softmax(-1), v)


class Sequences:
    """Random tokens of some sequences, their blocks scattered over a pool of NaN."""

    def __init__(self, spec: AttentionSpec, lengths: list[int]) -> None:
        self.spec, self.lengths = spec, lengths
        seed = secrets.randbits(32)
        print(f"seed {seed}")
        generator = torch.Generator().manual_seed(seed)

        def tokens(num_heads: int) -> list[torch.Tensor]:
            drawn = [torch.randn(n, num_heads, spec.head_dim, generator=generator) for n in lengths]
            return [x.to(DEVICE, spec.dtype) for x in drawn]

        self.q, self.k, self.v = tokens(spec.num_heads), tokens(spec.num_kv_heads), tokens(spec.num_kv_heads)
        per_seq = [-(-n // spec.block_size) for n in lengths]
        ids = list(range(sum(per_seq) + 2))
        random.Random(seed).shuffle(ids)
        self.tables = [[ids.pop() for _ in range(n)] for n in per_seq]
        shape = (sum(per_seq) + 2, 2, 2, spec.num_kv_heads, spec.block_size, spec.head_dim)
        self.kv = poisoned(*shape, dtype=spec.kv_dtype)[:, 1]
        self.backend = TritonAttention(spec)

    def step(self, work: list[tuple[int, int, int]]) -> float:
        """Compute (sequence, start, end) pieces in one step; the worst relative error of a piece."""
        lens, ends = [e - b for _, b, e in work], [e for _, _, e in work]
        batch = make_batch([self.tables[s] for s, _, _ in work], lens, ends, self.spec.block_size, str(DEVICE))
        q, k, v = (torch.cat([x[s][b:e] for s, b, e in work]) for x in (self.q, self.k, self.v))
        out = poisoned(*q.shape, dtype=q.dtype)
        self.backend.plan(batch)
        self.backend.run(q, k, v, self.kv, out)
        errors = [
            relative_error(got, attend(self.q[s][b:e], self.k[s][:e], self.v[s][:e], self.spec))
            for (s, b, e), got in zip(work, out.split(lens), strict=True)
        ]
        return max(errors) if all(x == x for x in errors) else float("nan")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SPECS)
def test_decode_prefill_and_mixed_steps_are_right(name: str, dtype: torch.dtype) -> None:
    sequences = Sequences(replace(SPECS[name], dtype=dtype, kv_dtype=dtype), [1, 65, 150])
    tolerance = TOLERANCE[dtype]
    assert sequences.step([(0, 0, 1), (1, 0, 64), (2, 0, 70)]) < tolerance, "prefill"
    assert sequences.step([(1, 64, 65), (2, 70, 149)]) < tolerance, "mixed"
    assert sequences.step([(2, 149, 150), (0, 0, 1), (1, 64, 65)]) < tolerance, "decode"
    assert not sequences.backend._counters.any(), "counters are ready for the next step"


@pytest.mark.parametrize("has_norm", [True, False], ids=["norm", "no-norm"])
def test_rotation_in_one_pass_equals_the_steps_on_their_own(has_norm: bool) -> None:
    spec, num_rows = replace(BASE, num_heads=6, num_kv_heads=3, head_dim=24), 40
    cos, sin = (torch.cat((t, t), 1) for t in torch.rand(2, 100, 12, device=DEVICE))
    norm = HeadNorm(*torch.rand(2, 24, device=DEVICE) + 0.5, 1e-6) if has_norm else None
    qkv = torch.randn(num_rows, 12, 24, device=DEVICE)
    q, k, v = qkv.clone().split((6, 3, 3), dim=1)
    if norm is not None:
        q, k = reference.rms_norm(q, norm.q, norm.eps), reference.rms_norm(k, norm.k, norm.eps)
    q, k = reference.rope(q, cos[:num_rows], sin[:num_rows]), reference.rope(k, cos[:num_rows], sin[:num_rows])
    batch = make_batch([[3, 1, 2]], [num_rows], [num_rows], spec.block_size, str(DEVICE))
    results = []
    for is_fused in (True, False):
        backend, kv = TritonAttention(spec), poisoned(4, 2, 3, 16, 24, dtype=torch.float32)
        out = poisoned(num_rows, 6, 24, dtype=torch.float32)
        backend.plan(batch)
        if is_fused:
            backend.run_rotary(qkv, Rotary(cos, sin, torch.arange(num_rows, device=DEVICE)), norm, kv, out)
        else:
            backend.run(q, k, v, kv, out)
        results.append((out, kv.nan_to_num(99.0)))
    (out, kv), (want_out, want_kv) = results
    torch.testing.assert_close(out, want_out, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(kv, want_kv, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_nan_of_one_sequence_stays_there() -> None:
    sequences = Sequences(BASE, [40, 30])
    for tensor in (sequences.q[0], sequences.k[0], sequences.v[0]):
        tensor[39] = float("nan")
    batch = make_batch(sequences.tables, [40, 30], [40, 30], BASE.block_size, str(DEVICE))
    q, k, v = (torch.cat(x) for x in (sequences.q, sequences.k, sequences.v))
    out = poisoned(*q.shape, dtype=q.dtype)
    sequences.backend.plan(batch)
    sequences.backend.run(q, k, v, sequences.kv, out)
    assert out[39].isnan().all()
    assert not out[40:].isnan().any()
