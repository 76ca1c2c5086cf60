"""What planning costs: processor time of plan() + update() for one step, without a model.

python benchmarks/scheduler.py [--num-seqs 64] [--json FILE]
"""

from __future__ import annotations

import argparse
import time

from harness import Figures, draw_prompts, report

from octavo.engine.plan import SampledToken, StepPlan, StepResult
from octavo.engine.scheduler import Scheduler
from octavo.engine.scheduler_spec import SchedulerSpec
from octavo.kv.hash import chain_seed, extend_chain
from octavo.request import Request, SequenceInput
from octavo.sampling_params import SamplingParams

VOCAB = 50_000
NUM_PROMPT_TOKENS = 1000
NUM_OUTPUT_TOKENS = 400


def answer(plan: StepPlan) -> StepResult:
    """A result with a fixed token per sampled row."""
    return StepResult(plan.step, [SampledToken(w.slot, 300 + w.slot) for w in plan.work if w.is_sampled])


def make_scheduler(num_seqs: int, has_cache: bool) -> Scheduler:
    """A scheduler with room for everything, and `num_seqs` requests in its queue."""
    scheduler = Scheduler(
        SchedulerSpec(
            num_blocks=num_seqs * 64,
            block_size=32,
            max_model_len=4096,
            max_num_batched_tokens=8192,
            max_num_seqs=num_seqs,
            max_num_waiting=num_seqs,
            vocab_size=VOCAB,
            enable_prefix_caching=has_cache,
        )
    )
    params = SamplingParams(seed=1, max_tokens=NUM_OUTPUT_TOKENS)
    for i, prompt in enumerate(draw_prompts("scheduler", 0, num_seqs, NUM_PROMPT_TOKENS, VOCAB)):
        scheduler.add(Request(str(i), 0, prompt, params, [SequenceInput(0)]))
    return scheduler


def measure(figures: Figures, num_seqs: int, has_cache: bool) -> None:
    """Run all requests to their end; each step's time goes to the row of its kind."""
    system = "with prefix cache" if has_cache else "without"
    scheduler = make_scheduler(num_seqs, has_cache)
    while scheduler.has_unfinished:
        start = time.process_time()
        plan = scheduler.plan()
        planned = time.process_time() - start
        if plan is None:
            raise RuntimeError("the scheduler has nothing to do before the end")
        result = answer(plan)
        start = time.process_time()
        scheduler.update(result)
        spent_ms = (planned + time.process_time() - start) * 1000
        is_decode = len(plan.work) == num_seqs and plan.num_tokens == num_seqs
        kind = f"decode step of {num_seqs}, ms" if is_decode else "step with prefill, ms"
        figures.add(kind, system, spent_ms)


def measure_chain(figures: Figures) -> None:
    """Hash a prompt of 8,192 tokens."""
    token_ids = draw_prompts("chain", 0, 1, 8192, VOCAB)[0]
    for _ in range(20):
        chain: list[bytes] = []
        start = time.process_time()
        extend_chain(chain, chain_seed(b"", "r"), token_ids)
        figures.add("chain of 8,192 tokens, ms", "with prefix cache", (time.process_time() - start) * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-seqs", type=int, default=64)
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    figures = Figures()
    for has_cache in (True, False):
        measure(figures, args.num_seqs, has_cache)
    measure_chain(figures)
    figures.show("Scheduler, median")
    report(args.json, scheduler=figures.rows())


if __name__ == "__main__":
    main()
