"""`GpuRunner`: executes step plans on a GPU, without waiting for it between steps.

`submit` launches a step and returns at once; what it returns waits for the step's tokens.  The next step may be
submitted before: its inputs are gathered on the device from what this one leaves in the slot tables.  Steps in which
every row decodes are replayed as CUDA graphs, of others the layers are.  Settings that the device cannot sample with
make their step wait for its logits, and are served by the host's sampler.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from octavo.engine.model.base import CausalLM
from octavo.engine.parallel.comm import Comm
from octavo.engine.plan import SampledToken, StepPlan, StepResult
from octavo.engine.runner.context import PagedAttention
from octavo.engine.runner.device_tables import DeviceTables
from octavo.engine.runner.runner import NO_TOKEN, Runner, choose
from octavo.engine.runner.step_graph import StepGraphs, decode_sizes, mixed_sizes
from octavo.engine.runner.step_inputs import Int64Array, StepInputs, Work
from octavo.engine.runner.token_output import TokenOutput
from octavo.engine.sampling.sampler import Choice
from octavo.errors import ErrorDetail, InternalError
from octavo.kernels.attention import MAX_CAPTURED_PREFILLS, AttentionBatch

Pending = Callable[[], StepResult]
"""Waits for a submitted step and gives its result."""


class GpuRunner(Runner):
    """One rank on one GPU.  `max_rows` bounds the tokens of a step."""

    tables: DeviceTables

    def __init__(
        self,
        model: CausalLM,
        tables: DeviceTables,
        attention: PagedAttention,
        comm: Comm,
        beat: Callable[[], None] = lambda: None,
        *,
        max_rows: int,
    ) -> None:
        from octavo.kernels.triton.sample import SampleWorkspace

        super().__init__(model, tables, attention, comm, beat)
        num_slots = len(tables.states)
        self._inputs = StepInputs(tables, max_rows)
        self._workspace = SampleWorkspace(num_slots, model.vocab_size, tables.device)
        self._output = TokenOutput(num_slots, tables.device)
        self._decodes = StepGraphs(decode_sizes(num_slots))
        self._mixed = StepGraphs([])
        # Logits of all sizes come from this block of torch's cache; growing it step by step would wait for the device.
        torch.empty(num_slots, model.vocab_size, dtype=torch.float32, device=tables.device)

    @torch.inference_mode()
    def capture(self, max_mixed_rows: int) -> None:
        """Capture decode steps of every size, and the layers of mixed steps of up to `max_mixed_rows` rows.

        Captured rows are nobody's: they write to the padding slot's block alone.
        """
        self._mixed = StepGraphs(mixed_sizes(max_mixed_rows))
        pool = self._mixed.capture(self._prepare_mixed, self._layers)
        nobody = np.zeros(0, dtype=np.int64)
        self._decodes.capture(lambda num_rows: self._prepare_decode(nobody, nobody, num_rows), self._decode, pool)

    def execute(self, plan: StepPlan) -> StepResult:
        return self.submit(plan)()

    @torch.inference_mode()
    def submit(self, plan: StepPlan) -> Pending:
        """Launch a step; call the result once, in the order of submission."""
        self._apply(plan)
        self.tables.flush()
        self.attention.copy_blocks([c.source for c in plan.copies], [c.target for c in plan.copies])
        work = Work.of(plan.work)
        errors: dict[int, ErrorDetail] = {}
        if not self._is_sound(work):
            errors, runnable = self._split(plan)
            work = Work.of(runnable)
        slots = work.slots[work.is_sampled]
        by_host: dict[int, Choice] = {}
        tokens: Callable[[], list[int]] = list
        if len(work.slots):
            logits = self._launch(work)
            self.tables.advance(slots)
            if logits is not None:
                tokens = self._output.copy(len(slots))
                by_host = self._choose_on_host(logits, slots)
        named = slots.tolist()

        def result() -> StepResult:
            found = tokens()
            if not errors and not by_host and (not found or min(found) >= 0):
                return StepResult(plan.step, list(map(SampledToken, named, found)))
            chosen = {s: _choice(token_id) for s, token_id in zip(named, found, strict=True)} | by_host
            return StepResult(plan.step, [self._sampled(w.slot, chosen, errors) for w in plan.work if w.is_sampled])

        return result

    def _is_sound(self, work: Work) -> bool:
        """Whether all work can be computed; `_split` says what cannot."""
        tables, ends = self.tables, work.starts + work.lens
        room = tables.num_blocks_np[:, work.slots].min(axis=0) * tables.block_size
        return not tables.errors and bool(
            ((work.lens > 0) & (work.starts >= 0) & (ends <= tables.num_tokens_np[work.slots]) & (ends <= room)).all()
        )

    def _launch(self, work: Work) -> torch.Tensor | None:
        """Compute and sample; the logits of the sampled rows, in the order of `work`."""
        tables, num_rows = self.tables, work.num_rows
        is_decode = len(work.slots) == num_rows and bool(work.is_sampled.all())
        if is_decode and (work.starts >= tables.num_known_np[work.slots]).all():
            size = self._decodes.padded(num_rows)
            if size is not None:
                self._prepare_decode(work.slots, work.starts, size)
                return self._decodes.replay(size)
        size = self._mixed.padded(num_rows) if (work.lens > 1).sum() <= MAX_CAPTURED_PREFILLS else None
        batches, sampled, sampled_rows = self._inputs.set_mixed(work, size or 0)
        self._plan(batches, size or 0)
        hidden = self._layers(num_rows) if size is None else self._mixed.replay(size)
        if not len(sampled_rows):
            return None
        logits = self.model.logits(hidden.index_select(0, sampled_rows))
        self._sample(logits, sampled)
        return logits

    def _prepare_decode(self, slots: Int64Array, positions: Int64Array, num_rows: int) -> None:
        self.attention.plan(self._inputs.set_decode(slots, positions, num_rows))

    def _prepare_mixed(self, num_rows: int) -> None:
        nobody = np.zeros(0, dtype=np.int64)
        batches, _, _ = self._inputs.set_mixed(Work(nobody, nobody, nobody, nobody > 0), num_rows)
        self._plan(batches, num_rows)

    def _plan(self, batches: list[AttentionBatch], num_captured_rows: int) -> None:
        for batch in batches:
            batch.is_mixed = num_captured_rows > 0
        self.attention.plan(batches)

    def _layers(self, num_rows: int) -> torch.Tensor:
        """The model's layers over the step's rows."""
        token_ids, positions = self._inputs.gather(num_rows)
        return self.model.forward(token_ids, positions, self.attention, self._beat)

    def _decode(self, num_rows: int) -> torch.Tensor:
        logits = self.model.logits(self._layers(num_rows))
        self._sample(logits, self._inputs.rows_of(num_rows)[:2])
        return logits

    def _sample(self, logits: torch.Tensor, rows: torch.Tensor) -> None:
        from octavo.kernels.triton.sample import sample_rows

        tables = self.tables
        sample_rows(logits, rows, tables.settings, tables.last_tokens, self._output.chosen, self._workspace)

    def _choose_on_host(self, logits: torch.Tensor, slots: Int64Array) -> dict[int, Choice]:
        """The choices of slots whose settings the device does not know; it is told the tokens."""
        rows = np.flatnonzero(self.tables.is_host_sampled_np[slots]).tolist()
        if not rows:
            return {}
        named = slots[rows].tolist()
        states = [state for slot in named if (state := self.tables.states[slot]) is not None]
        index = torch.tensor(rows, device=logits.device)
        choices = choose(logits.index_select(0, index).cpu().numpy(), states)
        for state, choice in zip(states, choices, strict=True):
            if choice.token_id != NO_TOKEN:
                state.append(choice.token_id)
        self.tables.set_last_tokens(named, [max(c.token_id, 0) for c in choices])
        self.tables.flush()
        return dict(zip(named, choices, strict=True))


def _choice(token_id: int) -> Choice:
    if token_id == NO_TOKEN:
        return Choice(NO_TOKEN, error=InternalError("the model put out logits that are not finite").detail())
    return Choice(token_id)
