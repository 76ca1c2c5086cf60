"""The GPU table: latency, throughput, prefill and HTTP of one shape with random weights, beside the figures to beat.

    python benchmarks/gpu.py [--shape qwen3-0.6b] [--only batch-1,T1] [--no-http] [--profile FILE] [--json FILE] [FLAGS]

FLAGS are engine flags (`--max-num-seqs 512` …).  Time per output token is (time for 128 − time for 1) / 127; figures
are medians of fresh prompts.  The base line was measured on an H200 with the same workloads.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_workload as workload
from gpu_shape import SHAPES, write_shape
from harness import report, timed
from rich.console import Console
from rich.table import Table
from systems import Served

NUM_OUT = 128
BASE: dict[str, dict[str, tuple[float, float]]] = {
    "qwen3-0.6b": {
        "batch 1, ms per token": (2.09, 1.0),
        "batch 8, ms per token": (2.34, 1.2),
        "batch 64, ms per token": (3.48, 2.0),
        "T1, output tok/s": (23863, 32000),
        "T2, output tok/s": (19790, 28000),
        "P1, prefill tok/s": (302609, 360000),
        "HTTP 256, req/s": (77, 170),
        "HTTP 32, mean TTFT ms": (103, 60),
    },
    "llama-3.1-8b": {
        "batch 1, ms per token": (5.01, 4.4),
        "batch 8, ms per token": (5.26, 4.6),
        "batch 64, ms per token": (6.54, 5.6),
        "T1, output tok/s": (6908, 7600),
        "T2, output tok/s": (11127, 12500),
        "P1, prefill tok/s": (40048, 40000),
        "HTTP 256, req/s": (46, 52),
        "HTTP 32, mean TTFT ms": (289, 200),
    },
}
"""Shape → figure → (vLLM 0.26.0 on an H200, the goal)."""


class Bench:
    """Runs workloads on an `LLM` in this process."""

    def __init__(self, folder: Path, vocab_size: int, **flags: Any) -> None:
        from octavo.llm import LLM

        self.vocab_size = vocab_size
        self.folder, self.flags = folder, flags
        self.llm = LLM(str(folder), load_format="dummy", **flags)
        gc.collect()
        gc.freeze()  # as an engine process does: what was loaded lives on
        self.figures: dict[str, list[float]] = {}

    def generate(self, jobs: list[workload.Job], temperature: float = 0.0) -> float:
        """Seconds for all jobs."""
        from octavo.llm import SamplingParams

        params = [SamplingParams(temperature=temperature, max_tokens=out, ignore_eos=True) for _, out in jobs]
        prompts = [{"prompt_token_ids": ids} for ids, _ in jobs]
        start = time.perf_counter()
        done = self.llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - start
        wanted = sum(out for _, out in jobs)
        got = sum(len(r.outputs[0].token_ids) for r in done)
        if got != wanted:
            raise RuntimeError(f"{got} tokens came out instead of {wanted}: {[r.error for r in done if r.error][:1]}")
        return seconds

    def warm_up(self) -> None:
        for index, batch in enumerate((1, 8, 64, 512)):
            self.generate(workload.fixed("warm", self.vocab_size, batch, 512, 8, 900 + index))
        self.generate(workload.throughput_mixed(self.vocab_size, 900, 64), 0.6)

    def latency(self, batch: int, repetitions: int = 5) -> None:
        ones, alls = [], []
        for r in range(repetitions):
            ones.append(self.generate(workload.latency(self.vocab_size, batch, 1, r)))
            alls.append(self.generate(workload.latency(self.vocab_size, batch, NUM_OUT, r)))
        first, whole = statistics.median(ones), statistics.median(alls)
        self.add(f"batch {batch}, ms per token", (whole - first) / (NUM_OUT - 1) * 1e3)
        self.add(f"batch {batch}, TTFT ms", first * 1e3)

    def throughput(self, name: str, make: Callable[[int, int], list[workload.Job]], temperature: float) -> None:
        for r in range(2):
            jobs = make(self.vocab_size, r)
            self.add(f"{name}, output tok/s", sum(out for _, out in jobs) / self.generate(jobs, temperature))

    def prefill(self) -> None:
        for r in range(3):
            jobs = workload.prefill(self.vocab_size, r)
            self.add("P1, prefill tok/s", sum(len(ids) for ids, _ in jobs) / self.generate(jobs))

    def prefix(self) -> None:
        unique = workload.shared_prefix(self.vocab_size, 0, is_shared=False)
        self.add("PC unique, s", self.generate(unique))
        self.add("PC shared, s", self.generate(workload.shared_prefix(self.vocab_size, 0, is_shared=True)))

    def http(self) -> None:
        """Closed loops over HTTP; the engine of this process makes room first."""
        self.llm.close()
        release_device(self)
        words = [f"--{name.replace('_', '-')}={value}" for name, value in self.flags.items()]
        served = Served(str(self.folder), "--load-format=dummy", "--max-num-waiting=2048", *words)
        try:
            jobs = [ids for ids, _ in workload.fixed("http-warm", self.vocab_size, 300, 512, 4, 0)]
            served.generate(jobs, 4)
            for concurrency, num in ((32, 256), (256, 1024)):
                self._closed_loop(served, concurrency, num)
        finally:
            served.close()

    def _closed_loop(self, served: Served, concurrency: int, num_requests: int) -> None:
        jobs = workload.fixed(f"http-{concurrency}", self.vocab_size, num_requests, 512, NUM_OUT, 0)
        prompts = [ids for ids, _ in jobs]
        first_ms: list[float] = []
        seconds = timed(lambda: asyncio.run(served.closed_loop(prompts, NUM_OUT, concurrency, first_ms)))
        self.add(f"HTTP {concurrency}, req/s", num_requests / seconds)
        self.add(f"HTTP {concurrency}, mean TTFT ms", statistics.mean(first_ms))

    def add(self, name: str, value: float) -> None:
        self.figures.setdefault(name, []).append(value)
        print(f"{name}: {value:,.4g}", flush=True)


def release_device(bench: Bench) -> None:
    """Give the memory of this process's engine back to the device."""
    import torch

    del bench.llm
    gc.unfreeze()
    gc.collect()
    torch.cuda.empty_cache()


def show(shape: str, figures: dict[str, list[float]]) -> None:
    table = Table(title=f"{shape}, random weights")
    for column in ("", "vLLM", "goal", "here", "of vLLM"):
        table.add_column(column, justify="right" if column else "left")
    for name, samples in figures.items():
        value = statistics.median(samples)
        base, goal = BASE[shape].get(name, (None, None))
        ratio = "" if base is None else f"{value / base:.2f}×"
        cells = ["" if x is None else f"{x:,.4g}" for x in (base, goal)]
        table.add_row(name, *cells, f"{value:,.4g}", ratio)
    Console(width=110).print(table)


def profiled(path: str, call: Callable[[], object]) -> None:
    """Run `call` under torch.profiler; print the kernels by time and write a trace to `path`."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as record:
        call()
    print(record.key_averages().table(sort_by="self_cuda_time_total", row_limit=30, max_name_column_width=60))
    record.export_chrome_trace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="qwen3-0.6b", choices=SHAPES)
    parser.add_argument("--only", default="", help="parts by name, separated by commas: batch-N, T1, T2, P1, PC, http")
    parser.add_argument("--no-http", action="store_true", help="leave HTTP out")
    parser.add_argument("--profile", default="", help="also profile 16 tokens at batch 64, and write a trace here")
    parser.add_argument("--max-num-seqs", type=int, default=512)
    parser.add_argument("--json", default="", help="write all samples to this file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        folder = write_shape(args.shape, Path(parent))
        start = time.perf_counter()
        bench = Bench(folder, SHAPES[args.shape]["vocab_size"], max_num_seqs=args.max_num_seqs)
        bench.add("start, s", time.perf_counter() - start)
        bench.warm_up()
        parts: dict[str, Callable[[], None]] = {
            **{f"batch-{n}": (lambda n=n: bench.latency(n)) for n in (1, 8, 64)},
            "T1": lambda: bench.throughput("T1", workload.throughput_fixed, 0.0),
            "T2": lambda: bench.throughput("T2", workload.throughput_mixed, 0.6),
            "P1": bench.prefill,
            "PC": bench.prefix,
        }
        if args.profile:
            profiled(args.profile, lambda: bench.generate(workload.latency(bench.vocab_size, 64, 16, 99)))
        wanted = args.only.split(",") if args.only else [*parts, "http"]
        for name in wanted:
            if name != "http":
                parts[name]()
        if "http" in wanted and not args.no_http:
            bench.http()
        show(args.shape, bench.figures)
        report(args.json, shape=args.shape, figures=bench.figures)


if __name__ == "__main__":
    main()
