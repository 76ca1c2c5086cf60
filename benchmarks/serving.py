"""Prefill and decode speed through `LLM` and through HTTP, against transformers, and what the services cost.

    python benchmarks/serving.py [--model smollm2-135m] [--reps 5] [--quick] [--json FILE]

Systems alternate within every repetition; figures are medians.  Decode is (time for all tokens - time for 1) over the
tokens between, so that prefill does not count.  The cost of the services is HTTP against `LLM` in the same run, and the
CPU time of gateway, router and worker front per token.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from harness import Figures, draw_prompts, machine, report, timed
from rich.console import Console
from systems import InProcess, Served, System, Transformers

VOCAB_SIZE = 49152
NUM_TOTAL = 16
SHORT = 16
"""Tokens of the prompts that show what one request costs."""
NUM_COST_STREAMS = 8

PREFILL = "prefill tok/s"
TOTAL = f"output tok/s, {NUM_TOTAL} requests at once"
REQUEST = "one request of 1 token, ms"
TOKEN = f"one token of {NUM_COST_STREAMS} streams, ms"


def decode(concurrency: int) -> str:
    return f"decode tok/s, {concurrency} at once"


@dataclass(frozen=True)
class Sizes:
    """How much is measured: prompts and outputs in tokens.  Prompts are short where prefill is not what is measured."""

    reps: int
    concurrencies: tuple[int, ...]
    num_in: int
    num_out: int
    num_short_in: int
    num_short_requests: int


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", default="smollm2-135m", help="demo name, folder or .gguf file (default: %(default)s)"
    )
    parser.add_argument("--dtype", default="auto", help="of all systems (default: what Octavo takes on this machine)")
    parser.add_argument("--reps", type=int, default=5, help="repetitions (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one repetition of a smaller set: shows that it works")
    parser.add_argument("--no-transformers", action="store_true", help="leave the peer out")
    parser.add_argument("--json", default="", help="write all samples to this file too")
    return parser.parse_args()


def sizes_of(args: argparse.Namespace) -> Sizes:
    if args.quick:
        return Sizes(1, (1, 8), num_in=256, num_out=32, num_short_in=64, num_short_requests=10)
    return Sizes(args.reps, (1, 8, 32), num_in=512, num_out=64, num_short_in=128, num_short_requests=40)


def measure_prefill(system: System, sizes: Sizes, repetition: int) -> float:
    """Tokens/s of prompts given together, one output token each."""
    prompts = draw_prompts("prefill", repetition, 4, sizes.num_in, VOCAB_SIZE)
    return sum(map(len, prompts)) / timed(lambda: system.generate(prompts, 1))


def measure_decode(system: System, sizes: Sizes, repetition: int, concurrency: int) -> float:
    """Tokens/s of `concurrency` sequences, without the time that the same number of prompts takes."""
    first, whole = (
        draw_prompts(f"decode-{concurrency}-{part}", repetition, concurrency, sizes.num_short_in, VOCAB_SIZE)
        for part in ("first", "whole")
    )
    first_s = timed(lambda: system.generate(first, 1))
    whole_s = timed(lambda: system.generate(whole, sizes.num_out))
    return concurrency * (sizes.num_out - 1) / (whole_s - first_s)


def measure_total(system: System, sizes: Sizes, repetition: int) -> float:
    """Output tokens/s over the whole time of a batch, prefill included."""
    prompts = draw_prompts("total", repetition, NUM_TOTAL, sizes.num_short_in, VOCAB_SIZE)
    return NUM_TOTAL * sizes.num_out / timed(lambda: system.generate(prompts, sizes.num_out))


def measure_request(system: System, sizes: Sizes, repetition: int) -> float:
    """ms of a short request for one token, one after the other."""
    prompts = draw_prompts("short", repetition, sizes.num_short_requests, SHORT, VOCAB_SIZE)
    return timed(lambda: [system.generate([prompt], 1) for prompt in prompts]) / len(prompts) * 1e3


def measure_token(system: System, sizes: Sizes, repetition: int) -> float:
    """ms of each token of several streams with short prompts."""
    prompts = draw_prompts("cost", repetition, NUM_COST_STREAMS, SHORT, VOCAB_SIZE)
    return timed(lambda: system.generate(prompts, sizes.num_out)) / (len(prompts) * sizes.num_out) * 1e3


def measure_cpu(served: Served, sizes: Sizes, repetition: int, figures: Figures) -> None:
    """CPU time of each service per token while it serves several streams."""
    before = served.cpu_seconds()
    prompts = draw_prompts("cpu", repetition, NUM_COST_STREAMS, SHORT, VOCAB_SIZE)
    served.generate(prompts, sizes.num_out)
    for role, used_s in served.cpu_seconds().items():
        used_us = (used_s - before.get(role, 0.0)) / (len(prompts) * sizes.num_out) * 1e6
        figures.add(f"CPU of {role}, µs per token", served.name, used_us)


Measure = Callable[[System, Sizes, int], float]


def measures(sizes: Sizes) -> Iterator[tuple[str, Measure, bool]]:
    """(what, how, whether transformers is measured too) of each figure."""
    yield PREFILL, measure_prefill, True
    for concurrency in sizes.concurrencies:
        yield decode(concurrency), lambda s, z, r, c=concurrency: measure_decode(s, z, r, c), concurrency == 1
    yield TOTAL, measure_total, True
    yield REQUEST, measure_request, False
    yield TOKEN, measure_token, False


def measure_all(systems: list[System], served: Served, sizes: Sizes, figures: Figures) -> None:
    """Fill `figures`; a line of progress for each."""
    for system in systems:
        system.generate(draw_prompts("warm", 0, 2, 64, VOCAB_SIZE), 4)
    for repetition in range(sizes.reps):
        for what, measure, has_peer in measures(sizes):
            for system in systems:
                if has_peer or system.name != Transformers.name:
                    value = measure(system, sizes, repetition)
                    figures.add(what, system.name, value)
                    line = f"[{repetition + 1}/{sizes.reps}] {what}, {system.name}: {value:,.4g}"
                    print(line, file=sys.stderr, flush=True)
        measure_cpu(served, sizes, repetition, figures)


def conclusions(figures: Figures) -> dict[str, float]:
    """The ratios and costs that matter, by what they are."""
    out: dict[str, float] = {}
    for name in (InProcess.name, Served.name):
        for text, what in (("prefill", PREFILL), ("decode of one sequence", decode(1)), (TOTAL, TOTAL)):
            ratio = figures.ratio(what, name, what, Transformers.name)
            if ratio is not None:
                suffix = " serving one at a time" if what == TOTAL else ""
                out[f"{text}, {name} / {Transformers.name}{suffix}"] = ratio
    for text, what in (("request", REQUEST), ("token", TOKEN)):
        served, bare = figures.median(what, Served.name), figures.median(what, InProcess.name)
        if served is not None and bare is not None:
            out[f"the services add to a {text}, µs"] = (served - bare) * 1e3
    roles = [figures.median(f"CPU of {role}, µs per token", Served.name) for role in ("gateway", "router", "worker")]
    if None not in roles:
        out["CPU of gateway, router and worker front, µs per token"] = sum(filter(None, roles))
    return out


def main() -> None:
    from octavo.engine.threads import limit_spinning

    limit_spinning()  # before the next import brings torch
    from octavo.engine.platform import detect_platform, resolve_dtype
    from octavo.hub.cache import cache_folder
    from octavo.hub.resolve import resolve_model

    args = parse_args()
    sizes, figures = sizes_of(args), Figures()
    dtype = resolve_dtype(args.dtype, detect_platform("auto"))
    weights = resolve_model(args.model).weights[0]
    with ExitStack() as stack:
        bare = stack.enter_context(closing(InProcess(args.model, dtype=dtype)))
        served = stack.enter_context(closing(Served(args.model, "--dtype", dtype)))
        systems: list[System] = [bare, served]
        if not args.no_transformers:
            source = weights if weights.suffix == ".gguf" else weights.parent
            peer = Transformers(Path(source), cache_folder() / "benchmark", dtype)
            systems.append(stack.enter_context(closing(peer)))
        measure_all(systems, served, sizes, figures)
    print(machine())
    figures.show(f"{args.model}, {dtype}, medians of {sizes.reps}", peer=Transformers.name)
    found = conclusions(figures)
    for text, value in found.items():
        Console(width=160).print(f"{text}: {value:,.2f}", highlight=False)
    report(args.json, model=args.model, dtype=dtype, figures=figures.rows(), conclusions=found)


if __name__ == "__main__":
    main()
