"""A simulated engine without torch: the real scheduler and block pool over an executor that sleeps.

A step takes `step_ms + token_ms × tokens computed + sequence_ms × rows`, and a token is a function of the sequence's
prompt, its index and its position (or repeats the prompt), so every path gives the same text.  `OCTAVO_SIM` holds
`SimSpec` as JSON for engine processes started with the builder `octavo.testing.sim:build_engine`.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence

import msgspec

from octavo.config.engine import EngineConfig
from octavo.engine.core import EngineCore
from octavo.engine.plan import SampledToken, StepPlan, StepResult
from octavo.engine.scheduler import Scheduler
from octavo.engine.scheduler_spec import SchedulerSpec
from octavo.kv.hash import ALGORITHM_ID
from octavo.kv.layout import GroupSpec, KVLayout
from octavo.kv.record import WorkerRecord
from octavo.request import TokenLogprobs

BUILDER = "octavo.testing.sim:build_engine"
SIM_ENV = "OCTAVO_SIM"


class SimSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Speed and sizes of a simulated engine."""

    step_ms: float = 1.0
    token_ms: float = 0.0
    sequence_ms: float = 0.0
    load_s: float = 0.0
    vocab_size: int = 1000
    num_blocks: int = 512
    block_size: int = 16
    max_model_len: int = 4096
    eos_token_id: int = -1
    is_echo: bool = False
    """Put out the prompt, again and again, so that a test chooses the text."""


def sim_token(prompt_token_ids: Sequence[int], sequence: int, index: int, vocab_size: int) -> int:
    """The output token at `index` of branch `sequence` of a prompt."""
    text = f"{list(prompt_token_ids)}/{sequence}/{index}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little") % vocab_size


class _Slot:
    def __init__(self, prompt: list[int], num_outputs: int, sequence: int, has_logprobs: bool) -> None:
        self.prompt, self.num_outputs, self.sequence, self.has_logprobs = prompt, num_outputs, sequence, has_logprobs


class SimExecutor:
    """Satisfies `octavo.engine.core.Executor`.  `sleep` and `beat` are for the process that runs it."""

    def __init__(
        self,
        spec: SimSpec,
        sleep: Callable[[float], None] = time.sleep,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._spec, self._sleep, self._beat = spec, sleep, beat
        self._slots: dict[int, _Slot] = {}

    def execute(self, plan: StepPlan) -> StepResult:
        for slot in plan.release:
            del self._slots[slot]
        for admit in plan.admit:
            prompt = admit.token_ids[: admit.num_prompt_tokens]
            num_outputs = len(admit.token_ids) - admit.num_prompt_tokens
            has_logprobs = admit.params.logprobs is not None
            self._slots[admit.slot] = _Slot(prompt, num_outputs, admit.sequence, has_logprobs)
        spec = self._spec
        self._beat()
        self._sleep((spec.step_ms + spec.token_ms * plan.num_tokens + spec.sequence_ms * len(plan.work)) / 1000)
        self._beat()
        return StepResult(plan.step, [self._sample(w.slot) for w in plan.work if w.is_sampled])

    def _sample(self, index: int) -> SampledToken:
        slot = self._slots[index]
        if self._spec.is_echo:
            token = slot.prompt[slot.num_outputs % len(slot.prompt)]
        else:
            token = sim_token(slot.prompt, slot.sequence, slot.num_outputs, self._spec.vocab_size)
        slot.num_outputs += 1
        logprobs = TokenLogprobs(-0.5, 1, [token], [-0.5]) if slot.has_logprobs else None
        return SampledToken(index, token, logprobs)

    def close(self) -> None:
        self._slots.clear()


def make_core(
    spec: SimSpec,
    config: EngineConfig | None = None,
    sleep: Callable[[float], None] = time.sleep,
    beat: Callable[[], None] = lambda: None,
) -> EngineCore:
    """An `EngineCore` over a `SimExecutor`; scheduler settings come from `config`."""
    config = config or EngineConfig()
    scheduler = SchedulerSpec(
        num_blocks=spec.num_blocks,
        block_size=spec.block_size,
        max_model_len=config.model.max_model_len or spec.max_model_len,
        max_num_batched_tokens=config.scheduler.max_num_batched_tokens or 512,
        max_num_seqs=config.scheduler.max_num_seqs,
        max_num_waiting=config.scheduler.max_num_waiting,
        policy=config.scheduler.scheduling_policy,
        enable_chunked_prefill=config.scheduler.enable_chunked_prefill,
        enable_prefix_caching=config.cache.enable_prefix_caching,
        eos_token_ids=frozenset({spec.eos_token_id}) if spec.eos_token_id >= 0 else frozenset(),
        vocab_size=spec.vocab_size,
        model_revision="sim",
    )
    return EngineCore(Scheduler(scheduler), SimExecutor(spec, sleep, beat))


def make_record(spec: SimSpec, config: EngineConfig, max_sequence_tokens: int) -> WorkerRecord:
    """The record of a simulated engine, without addresses."""
    model = config.model.model or "sim"
    return WorkerRecord(
        worker_id="",
        incarnation="",
        role="both",
        model=model,
        served_names=config.model.served_model_name or (model,),
        content_id="sim",
        model_revision="sim",
        layout=KVLayout(spec.block_size, 1, 1, "float32", (GroupSpec(0, "full", (0,)),)),
        numerics=f"sim-{spec.vocab_size}",
        algorithms=(ALGORITHM_ID,),
        max_sequence_tokens=max_sequence_tokens,
        vocab_size=spec.vocab_size,
        num_blocks=spec.num_blocks,
        max_num_seqs=config.scheduler.max_num_seqs,
        device="sim",
        is_deterministic=True,
    )


def build_engine(
    config: EngineConfig, *, beat: Callable[[], None], notify: Callable[[str, float, float, str], None]
) -> tuple[EngineCore, WorkerRecord]:
    """What an engine process calls; the speed comes from the environment."""
    spec = msgspec.json.decode(os.environ.get(SIM_ENV, "{}"), type=SimSpec)
    notify("loading", 0.5, 0.0, "simulated weights")
    time.sleep(spec.load_s)
    core = make_core(spec, config, beat=beat)
    return core, make_record(spec, config, core.scheduler.spec.max_sequence_tokens)
