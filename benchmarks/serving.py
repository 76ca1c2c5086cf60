"""Prefill and decode speed through `LLM` and through HTTP, against transformers, and what the services cost.

    python benchmarks/serving.py [--model smollm2-135m] [--reps 5] [--quick] [--json FILE]

Systems alternate within every repetition; figures are medians.  Decode is (time for `OUT` tokens - time for 1) over the
tokens between, so that prefill does not count.  The services' cost is HTTP against `LLM` in the same run, and the CPU
time of gateway, router and worker front per token.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness import Figures, draw_prompts, machine, timed, write_json
from rich.progress import Progress
from systems import InProcess, Served, System, Transformers

NUM_IN = 512
NUM_OUT = 64
CONCURRENCIES = (1, 8, 32)
VOCAB_SIZE = 49152


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="demo name or .gguf file (default: %(default)s)")
    parser.add_argument("--reps", type=int, default=5, help="repetitions (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one repetition of a smaller set: shows that it works")
    parser.add_argument("--no-transformers", action="store_true", help="leave the peer out")
    parser.add_argument("--json", default="", help="write all samples to this file")
    return parser.parse_args()


def measure_prefill(system: System, figures: Figures, repetition: int) -> None:
    prompts = draw_prompts("prefill", repetition, 4, NUM_IN, VOCAB_SIZE)
    seconds = timed(lambda: system.generate(prompts, 1))
    figures.add("prefill tok/s", system.name, sum(map(len, prompts)) / seconds)


def measure_decode(system: System, figures: Figures, repetition: int, concurrency: int) -> None:
    fresh = [draw_prompts(f"decode-{concurrency}-{k}", repetition, concurrency, NUM_IN, VOCAB_SIZE) for k in (0, 1)]
    first = timed(lambda: system.generate(fresh[0], 1))
    whole = timed(lambda: system.generate(fresh[1], NUM_OUT))
    figures.add(f"decode tok/s, {concurrency} at once", system.name, concurrency * (NUM_OUT - 1) / (whole - first))


def measure_total(system: System, figures: Figures, repetition: int) -> None:
    prompts = draw_prompts("total-16", repetition, 16, 128, VOCAB_SIZE)
    seconds = timed(lambda: system.generate(prompts, NUM_OUT))
    figures.add("output tok/s, 16 requests of 128 in", system.name, 16 * NUM_OUT / seconds)


def measure_cost(bare: InProcess, served: Served, figures: Figures, repetition: int) -> None:
    """What the services add per request (short requests, one after the other) and per token (8 streams)."""
    num_requests = 20
    short = draw_prompts("short", repetition, num_requests, 16, VOCAB_SIZE)
    for system in (bare, served):
        seconds = timed(lambda s=system: [s.generate([p], 1) for p in short])
        figures.add("one short request, ms", system.name, seconds / num_requests * 1e3)
    before = served.cpu_seconds()
    served.generate(draw_prompts("cost", repetition, 8, 16, VOCAB_SIZE), NUM_OUT)
    after = served.cpu_seconds()
    for role in ("gateway", "router", "worker"):
        used = after.get(role, 0.0) - before.get(role, 0.0)
        figures.add(f"CPU of {role}, µs per token", served.name, used / (8 * NUM_OUT) * 1e6)


def main() -> None:
    args = parse_args()
    reps = 1 if args.quick else args.reps
    concurrencies = (1, 8) if args.quick else CONCURRENCIES
    bare, served = InProcess(args.model), Served(args.model)
    systems: list[System] = [bare, served]
    if not args.no_transformers:
        from octavo.hub.resolve import resolve_model

        gguf = Path(resolve_model(args.model).weights[0])
        systems.append(Transformers(gguf, gguf.parent / "bench"))
    figures, costs = Figures(), Figures()
    try:
        for system in systems:
            system.generate(draw_prompts("warm", 0, 2, 64, VOCAB_SIZE), 4)
        with Progress() as progress:
            task = progress.add_task("benchmark", total=reps * (len(systems) * (2 + len(concurrencies)) + 1))
            for repetition in range(reps):
                for system in systems:
                    measure_prefill(system, figures, repetition)
                    progress.advance(task)
                for concurrency in concurrencies:
                    for system in systems:
                        if system.name != Transformers.name or concurrency == 1:
                            measure_decode(system, figures, repetition, concurrency)
                        progress.advance(task)
                for system in systems:
                    measure_total(system, figures, repetition)
                    progress.advance(task)
                measure_cost(bare, served, costs, repetition)
                progress.advance(task)
    finally:
        for system in systems:
            system.close()
    print(machine())
    figures.show(f"{args.model}, {reps} repetitions, medians", peer=Transformers.name)
    costs.show("cost of the services", peer=bare.name)
    write_json(args.json, model=args.model, figures=figures.rows(), costs=costs.rows())


if __name__ == "__main__":
    main()
