"""A deterministic executor for scheduler tests: its next token is a hash of everything it read from its blocks.

It keeps real block contents (token and position per slot of each block, per group), so that a plan that reads a wrong,
stale or foreign block changes the tokens.  `oracle` computes the same tokens without blocks, cache or batching.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from octavo.engine.core import EngineCore
from octavo.engine.plan import SampledToken, StepPlan, StepResult
from octavo.engine.scheduler import Scheduler
from octavo.engine.scheduler_spec import SchedulerSpec
from octavo.request import Emission, Request, SequenceInput
from octavo.sampling_params import SamplingParams

VOCAB = 97
EOS = 0


def next_token(token_ids: Iterable[int], seed: int, sequence: int) -> int:
    """The token after `token_ids`, as a pure function of them and of the sequence's noise key."""
    text = ",".join(map(str, token_ids)) + f"|{seed}|{sequence}"
    return zlib.crc32(text.encode()) % VOCAB


@dataclass
class FakeSlot:
    token_ids: list[int]
    sequence: int
    seed: int
    tables: list[list[int]]


@dataclass
class FakeExecutor:
    """Runs plans on token "KV"; raises AssertionError when a plan breaks the contract of `StepPlan`."""

    spec: SchedulerSpec
    plans: list[StepPlan] = field(default_factory=list)
    num_tokens: int = 0

    def __post_init__(self) -> None:
        self.slots: dict[int, FakeSlot] = {}
        self.kv: list[list[int | None]] = [[None] * self.spec.block_size for _ in range(self.spec.num_blocks)]

    def execute(self, plan: StepPlan) -> StepResult:
        self.plans.append(plan)
        for slot in plan.release:
            del self.slots[slot]
        for admit in plan.admit:
            assert admit.slot not in self.slots, f"slot {admit.slot} is taken"
            assert admit.params.seed is not None
            tables = [list(table) for table in admit.block_tables]
            self.slots[admit.slot] = FakeSlot(list(admit.token_ids), admit.sequence, admit.params.seed, tables)
        for grow in plan.grow:
            self.slots[grow.slot].tables[grow.group].extend(grow.block_ids)
        for copy in plan.copies:
            self.kv[copy.target] = list(self.kv[copy.source])
        assert len({w.slot for w in plan.work}) == len(plan.work)
        for work in plan.work:
            self._write(self.slots[work.slot], work.start, work.start + work.num_tokens)
        self.num_tokens += plan.num_tokens
        return StepResult(plan.step, [self._sample(w.slot, w.start + w.num_tokens) for w in plan.work if w.is_sampled])

    def close(self) -> None:
        self.slots.clear()

    def _write(self, slot: FakeSlot, start: int, end: int) -> None:
        for position in range(start, end):
            for group, table in enumerate(slot.tables):
                block = self.kv[table[position // self.spec.block_size]]
                block[position % self.spec.block_size] = slot.token_ids[position] + group * VOCAB

    def _sample(self, slot_id: int, end: int) -> SampledToken:
        slot = self.slots[slot_id]
        assert end == len(slot.token_ids), f"sampled at {end}, but {len(slot.token_ids)} tokens are known"
        for group, table in enumerate(slot.tables):
            size = self.spec.block_size
            read = [self.kv[table[p // size]][p % size] for p in range(end)]
            assert read == [t + group * VOCAB for t in slot.token_ids], f"group {group} reads other tokens"
        token = next_token(slot.token_ids, slot.seed, slot.sequence)
        slot.token_ids.append(token)
        return SampledToken(slot_id, token)


def make_spec(**changes: object) -> SchedulerSpec:
    """Small limits; `changes` replace fields."""
    fields: dict[str, object] = {
        "num_blocks": 64,
        "block_size": 16,
        "max_model_len": 512,
        "max_num_batched_tokens": 64,
        "max_num_seqs": 8,
        "max_num_waiting": 256,
        "eos_token_ids": frozenset({EOS}),
        "vocab_size": VOCAB,
    }
    return SchedulerSpec(**(fields | changes))  # type: ignore[arg-type]  # fields by name


def make_core(**changes: object) -> EngineCore:
    """A core over a `FakeExecutor`."""
    spec = make_spec(**changes)
    return EngineCore(Scheduler(spec), FakeExecutor(spec))


def make_request(
    request_id: str,
    prompt: Sequence[int],
    *,
    attempt: int = 0,
    priority: int = 0,
    outputs: dict[int, list[int]] | None = None,
    namespace: bytes = b"",
    deadline_unix_s: float = 0.0,
    **params: object,
) -> Request:
    """A request with `n` branches, or those of `outputs` (index → ids put out before)."""
    fields: dict[str, object] = {"seed": 7, "max_tokens": 8, "ignore_eos": True} | params
    sampling = SamplingParams(**fields)  # type: ignore[arg-type]  # fields by name
    branches = {i: [] for i in range(sampling.n)} if outputs is None else outputs
    return Request(
        request_id,
        attempt,
        list(prompt),
        sampling,
        [SequenceInput(index, list(ids)) for index, ids in branches.items()],
        namespace=namespace,
        priority=priority,
        deadline_unix_s=deadline_unix_s,
    )


def oracle(request: Request, sequence: int, spec: SchedulerSpec) -> list[int]:
    """Every output id of one branch (those before a resume included), one token at a time, by the stop rules."""
    params = request.params
    outputs = next(list(b.output_token_ids) for b in request.sequences if b.index == sequence)
    limit = spec.max_sequence_tokens - len(request.prompt_token_ids)
    if params.max_tokens is not None:
        limit = min(limit, params.max_tokens)
    while len(outputs) < limit:
        if outputs and len(outputs) >= params.min_tokens:
            is_eos = outputs[-1] in spec.eos_token_ids and not params.ignore_eos
            if is_eos or outputs[-1] in params.stop_token_ids:
                break
        outputs.append(next_token([*request.prompt_token_ids, *outputs], params.seed or 0, sequence))
    return outputs


@dataclass
class Outcome:
    """What a test collected of one branch."""

    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    num_cached_tokens: int | None = None


class Collector:
    """Puts emissions together, and asserts that no index is repeated, skipped or follows an end."""

    def __init__(self) -> None:
        self.outcomes: dict[tuple[str, int, int], Outcome] = {}

    def take(self, emissions: list[Emission]) -> None:
        for e in emissions:
            key = (e.request_id, e.attempt, e.sequence)
            is_first = key not in self.outcomes
            outcome = self.outcomes.setdefault(key, Outcome())
            assert outcome.finish_reason is None, f"{key} goes on after its end"
            assert (e.num_cached_tokens >= 0) == is_first or e.finish_reason == "abort"
            if is_first:
                outcome.num_cached_tokens = e.num_cached_tokens
                outcome.token_ids = [-1] * e.index_from
            assert e.index_from == len(outcome.token_ids), f"{key} continues at {e.index_from}"
            outcome.token_ids += e.token_ids
            outcome.finish_reason, outcome.stop_reason = e.finish_reason, e.stop_reason


def run_all(core: EngineCore, max_steps: int = 10_000) -> Collector:
    """Step until nothing is left; fails when that takes more than `max_steps`."""
    collector = Collector()
    for _ in range(max_steps):
        if not core.has_unfinished_requests():
            return collector
        collector.take(core.step())
    raise AssertionError(f"not finished after {max_steps} steps: {core.states()}")
