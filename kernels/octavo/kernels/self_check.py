"""The start-up self-check: does a row keep its bits on this machine, whatever stands beside it?"""

from __future__ import annotations

import torch

from octavo.kernels import op
from octavo.kernels.attention import AttentionBackend, AttentionBatch, AttentionSpec

MAX_ROWS = 16
_CONTEXT = 70


def determinism_check(
    backend: type[AttentionBackend], spec: AttentionSpec, shapes: tuple[tuple[int, int], ...] = ((96, 64), (64, 160))
) -> list[str]:
    """What differs between M = 1 … 16 rows on this machine; empty when nothing does.  Takes some milliseconds.

    Linears are checked in `spec.dtype` at `shapes` (out, in).  Attention is checked with `spec`'s head size: rows of
    one sequence computed at once must equal the same rows computed one by one, and beside other sequences.
    """
    generator = torch.Generator().manual_seed(1)
    found = []
    for out_features, in_features in shapes:
        found += _check_linear(spec, out_features, in_features, generator)
    return found + _check_attention(backend, spec, generator)


def _random(generator: torch.Generator, *shape: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    return torch.randn(shape, generator=generator).to(device, dtype)


def _check_linear(spec: AttentionSpec, out_features: int, in_features: int, generator: torch.Generator) -> list[str]:
    x = _random(generator, MAX_ROWS, in_features, dtype=spec.dtype, device=spec.device)
    weight = _random(generator, out_features, in_features, dtype=spec.dtype, device=spec.device)
    packed = op.pack_linear(weight)
    full = op.linear(x, packed)
    differ = [m for m in range(1, MAX_ROWS) if not torch.equal(op.linear(x[:m].clone(), packed), full[:m])]
    if not differ:
        return []
    return [f"linear {out_features} x {in_features} in {spec.dtype} differs from {MAX_ROWS} rows at {differ} rows"]


def make_batch(
    tables: list[list[int]], query_lens: list[int], context_lens: list[int], block_size: int, device: str = "cpu"
) -> AttentionBatch:
    """A batch of sequences by their block tables, numbers of query rows and of tokens with these rows."""
    width = max(len(t) for t in tables)
    starts, slots = [0], []
    for table, num_rows, context in zip(tables, query_lens, context_lens, strict=True):
        starts.append(starts[-1] + num_rows)
        slots += [table[p // block_size] * block_size + p % block_size for p in range(context - num_rows, context)]
    return AttentionBatch(
        query_starts=torch.tensor(starts, device=device),
        context_lens=torch.tensor(context_lens, device=device),
        block_tables=torch.tensor([t + [0] * (width - len(t)) for t in tables], device=device),
        slot_mapping=torch.tensor(slots, device=device),
        query_lens_host=query_lens,
        context_lens_host=context_lens,
    )


def _check_attention(backend: type[AttentionBackend], spec: AttentionSpec, generator: torch.Generator) -> list[str]:
    per_seq = -(-_CONTEXT // spec.block_size)
    tables = [[3 * i + s for i in range(per_seq)] for s in range(3)]
    kv = _random(
        generator,
        3 * per_seq,
        2,
        spec.num_kv_heads,
        spec.block_size,
        spec.head_dim,
        dtype=spec.kv_dtype,
        device=spec.device,
    )
    q = _random(generator, _CONTEXT, spec.num_heads, spec.head_dim, dtype=spec.dtype, device=spec.device)
    k, v = (
        _random(generator, _CONTEXT, spec.num_kv_heads, spec.head_dim, dtype=spec.dtype, device=spec.device)
        for _ in "kv"
    )
    attention = backend(spec)

    def run(rows: slice, others: int) -> torch.Tensor:
        """The given rows of sequence 0, beside the last row of `others` more sequences with the same tokens."""
        num_rows, last = rows.stop - rows.start, slice(rows.stop - 1, rows.stop)
        lens, contexts = [num_rows] + [1] * others, [rows.stop] * (1 + others)
        attention.plan(make_batch(tables[: 1 + others], lens, contexts, spec.block_size, spec.device))
        parts = [[x[rows]] + [x[last]] * others for x in (q, k, v)]
        joined_q, joined_k, joined_v = (torch.cat(p) for p in parts)
        out = torch.empty_like(joined_q)
        attention.run(joined_q, joined_k, joined_v, kv, out)
        return out[:num_rows]

    full = run(slice(0, _CONTEXT), 0)
    found = []
    for rows, others in ((slice(_CONTEXT - 1, _CONTEXT), 0), (slice(_CONTEXT - 1, _CONTEXT), 2), (slice(50, 66), 1)):
        if not torch.equal(run(rows, others), full[rows]):
            found.append(
                f"attention rows {rows.start} to {rows.stop} beside {others} sequences differ from one prefill"
            )
    return found
