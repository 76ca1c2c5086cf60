"""Time the CPU attention backend alone: `python benchmarks/attention_cpu.py [--threads N] [--dtype bfloat16]`.

Prints the best time of a layer (microseconds) for decode and prefill shapes of a SmolLM2-135M: 9 heads over 3 KV heads
of 64 dimensions, blocks of 32.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from octavo.kernels.attention import AttentionSpec
from octavo.kernels.cpu.attention import TorchCpuAttention
from octavo.kernels.self_check import make_batch

NUM_LAYERS = 8
BLOCK_SIZE = 32
SHAPES = [(1, 1, 40), (1, 1, 200), (1, 1, 2000), (16, 1, 40), (16, 1, 200), (16, 1, 500), (1, 512, 512), (1, 512, 2048)]
"""(sequences, query rows of each, context of each)."""


def best_us(function: Callable[[int], None], num_runs: int = 30) -> float:
    times = []
    for run in range(num_runs):
        start = time.perf_counter()
        function(run % NUM_LAYERS)
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def measure(num_seqs: int, num_rows: int, context: int, dtype: torch.dtype) -> float:
    spec = AttentionSpec(9, 3, 64, BLOCK_SIZE, dtype, dtype, "cpu", 0.125)
    per_seq = -(-context // BLOCK_SIZE)
    kv = torch.randn(num_seqs * per_seq, NUM_LAYERS, 2, 3, BLOCK_SIZE, 64).to(dtype)
    tables = [[s * per_seq + i for i in range(per_seq)] for s in range(num_seqs)]
    backend = TorchCpuAttention(spec)
    backend.plan(make_batch(tables, [num_rows] * num_seqs, [context] * num_seqs, BLOCK_SIZE))
    total = num_seqs * num_rows
    q, k, v = (torch.randn(total, heads, 64).to(dtype) for heads in (9, 3, 3))
    out = torch.empty_like(q)
    return best_us(lambda layer: backend.run(q, k, v, kv[:, layer], out))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"{args.dtype}, {args.threads} threads: sequences x rows, context, microseconds a layer")
    with torch.inference_mode():
        for num_seqs, num_rows, context in SHAPES:
            took = measure(num_seqs, num_rows, context, getattr(torch, args.dtype))
            print(f"{num_seqs:3} x {num_rows:3}  {context:5}  {took:9.0f}")


if __name__ == "__main__":
    main()
