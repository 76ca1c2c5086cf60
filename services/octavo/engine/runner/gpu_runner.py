"""`GpuRunner`: executes step plans on a GPU, without waiting for it between steps.

`submit` launches a step and returns at once; what it returns waits for the step's tokens.  The next step may be
submitted before: its inputs are gathered on the device from what this one leaves in the slot tables.  Steps in which
every row decodes are replayed as CUDA graphs.  Settings that the device cannot sample with make their step wait for its
logits, and are served by the host's sampler.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from octavo.engine.model.base import CausalLM
from octavo.engine.parallel.comm import Comm
from octavo.engine.plan import SlotWork, StepPlan, StepResult
from octavo.engine.runner.context import PagedAttention
from octavo.engine.runner.decode_graph import DecodeGraphs, graph_sizes
from octavo.engine.runner.device_tables import DeviceTables
from octavo.engine.runner.runner import NO_TOKEN, Runner, choose
from octavo.engine.runner.step_inputs import StepInputs
from octavo.engine.runner.token_output import TokenOutput
from octavo.engine.sampling.sampler import Choice
from octavo.errors import InternalError

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
        self._graphs = DecodeGraphs(graph_sizes(num_slots))

    @torch.inference_mode()
    def capture(self) -> None:
        """Capture decode steps of every size; they write to the padding slot's block alone."""
        self._graphs.capture(lambda num_rows: self._prepare_decode([], [], num_rows), self._decode)

    def execute(self, plan: StepPlan) -> StepResult:
        return self.submit(plan)()

    @torch.inference_mode()
    def submit(self, plan: StepPlan) -> Pending:
        """Launch a step; call the result once, in the order of submission."""
        self._apply(plan)
        self.tables.flush()
        self.attention.copy_blocks([c.source for c in plan.copies], [c.target for c in plan.copies])
        errors, runnable = self._split(plan)
        slots = [w.slot for w in runnable if w.is_sampled]
        by_host: dict[int, Choice] = {}
        tokens: Callable[[], list[int]] = list
        if runnable:
            logits = self._launch(runnable, len(slots))
            for slot in slots:
                self.tables.advance(slot)
            if logits is not None:
                tokens = self._output.copy(len(slots))
                by_host = self._choose_on_host(logits, slots)

        def result() -> StepResult:
            chosen = {s: _choice(token_id) for s, token_id in zip(slots, tokens(), strict=True)} | by_host
            return StepResult(plan.step, [self._sampled(w.slot, chosen, errors) for w in plan.work if w.is_sampled])

        return result

    def _launch(self, work: list[SlotWork], num_sampled: int) -> torch.Tensor | None:
        """Compute and sample; the logits of the sampled rows, in the order of `work`."""
        size = self._graphs.padded(len(work)) if num_sampled == len(work) else None
        if size is not None and all(w.num_tokens == 1 and self._is_from_device(w) for w in work):
            self._prepare_decode([w.slot for w in work], [w.start for w in work], size)
            return self._graphs.replay(size)
        batches, sampled, sampled_rows = self._inputs.set_mixed(work)
        self.attention.plan(batches)
        token_ids, positions = self._inputs.gather(sum(w.num_tokens for w in work))
        hidden = self.model.forward(token_ids, positions, self.attention, self._beat)
        if not num_sampled:
            return None
        logits = self.model.logits(hidden.index_select(0, sampled_rows))
        self._sample(logits, sampled)
        return logits

    def _is_from_device(self, work: SlotWork) -> bool:
        return work.start >= len(self.tables.known_np[work.slot])

    def _prepare_decode(self, slots: list[int], positions: list[int], num_rows: int) -> None:
        self.attention.plan(self._inputs.set_decode(slots, positions, num_rows))

    def _decode(self, num_rows: int) -> torch.Tensor:
        token_ids, positions = self._inputs.gather(num_rows)
        logits = self.model.logits(self.model.forward(token_ids, positions, self.attention, lambda: None))
        self._sample(logits, self._inputs.rows_of(num_rows)[:2])
        return logits

    def _sample(self, logits: torch.Tensor, rows: torch.Tensor) -> None:
        from octavo.kernels.triton.sample import sample_rows

        tables = self.tables
        sample_rows(logits, rows, tables.settings, tables.last_tokens, self._output.chosen, self._workspace)

    def _choose_on_host(self, logits: torch.Tensor, slots: list[int]) -> dict[int, Choice]:
        """The choices of slots whose settings the device does not know; it is told the tokens."""
        rows = [row for row, slot in enumerate(slots) if self.tables.is_host_sampled[slot]]
        if not rows:
            return {}
        named = [slots[row] for row in rows]
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
