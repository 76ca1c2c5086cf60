"""`Runner`: executes step plans on one rank."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from octavo.engine.model.base import CausalLM
from octavo.engine.parallel.comm import Comm
from octavo.engine.plan import SampledToken, SlotWork, StepPlan, StepResult
from octavo.engine.runner.batch import make_batch
from octavo.engine.runner.context import PagedAttention
from octavo.engine.runner.slots import SlotTables
from octavo.engine.sampling.sampler import Choice, sample
from octavo.engine.sampling.state import SamplerState
from octavo.errors import ErrorDetail, InternalError

NO_TOKEN = -1


class Runner:
    """One rank: its model, slot tables and KV pool.

    `execute` never raises for what one request carries: that sequence's sample returns the error.  It raises when the
    plan itself is impossible or another rank is gone; then the engine cannot go on.
    """

    def __init__(
        self,
        model: CausalLM,
        tables: SlotTables,
        attention: PagedAttention,
        comm: Comm,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self.model, self.tables, self.attention, self.comm = model, tables, attention, comm
        self._beat = beat

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        """Release, admit, grow, copy, compute, sample.  The result is rank 0's; other ranks return the same tokens."""
        self._apply(plan)
        self._clear_new_blocks(plan)
        self.attention.copy_blocks([c.source for c in plan.copies], [c.target for c in plan.copies])
        errors, runnable = self._split(plan)
        chosen = self._compute(runnable) if runnable else {}
        reported = [w.slot for w in plan.work if w.is_sampled or w.slot in errors]
        return StepResult(plan.step, [self._sampled(slot, chosen, errors) for slot in reported])

    def _apply(self, plan: StepPlan) -> None:
        """Release, admit, grow."""
        for slot in plan.release:
            self.tables.release(slot)
        for admit in plan.admit:
            self.tables.admit(admit)
        for grow in plan.grow:
            self.tables.grow(grow)

    def _split(self, plan: StepPlan) -> tuple[dict[int, ErrorDetail], list[SlotWork]]:
        """The errors of work that cannot be computed, by slot, and the other work."""
        errors = {w.slot: error for w in plan.work if (error := self._problem(w)) is not None}
        return errors, [w for w in plan.work if w.slot not in errors] if errors else plan.work

    def _clear_new_blocks(self, plan: StepPlan) -> None:
        """Blocks whose every token is still to be written; shared ones come before the first token of the work."""
        starts = {w.slot: w.start for w in plan.work}
        block_size = self.tables.block_size
        new = [block for grow in plan.grow for block in grow.block_ids]
        for admit in plan.admit:
            first = -(-starts.get(admit.slot, len(admit.token_ids)) // block_size)
            new += [block for table in admit.block_tables for block in table[first:]]
        self.attention.clear_blocks(new)

    def _problem(self, work: SlotWork) -> ErrorDetail | None:
        """Why an item cannot be computed."""
        tables, slot = self.tables, work.slot
        if slot in tables.errors:
            return tables.errors[slot]
        if tables.states[slot] is None:
            raise InternalError(f"slot {slot} has work but no sequence")
        end = work.start + work.num_tokens
        if work.num_tokens < 1 or not 0 <= work.start < end <= tables.num_tokens[slot]:
            return InternalError(
                f"tokens {work.start} to {end} of slot {slot}, which has {tables.num_tokens[slot]}"
            ).detail()
        for group, counts in enumerate(tables.num_blocks):
            if end > counts[slot] * tables.block_size:
                return InternalError(
                    f"slot {slot} has {counts[slot]} blocks of group {group}, too few for {end} tokens"
                ).detail()
        return None

    def _compute(self, work: list[SlotWork]) -> dict[int, Choice]:
        """Run the model over `work`, sample, and append what was sampled to the slots."""
        batch = make_batch(self.tables, work)
        self.attention.plan(batch.groups)
        hidden = self.model.forward(batch.token_ids, batch.positions, self.attention, self._beat)
        slots = [w.slot for w in work if w.is_sampled]
        if not slots:
            return {}
        logits = self.model.logits(hidden.index_select(0, batch.sampled_rows))
        choices = self._choose(logits, slots)
        kept = [(slot, c.token_id) for slot, c in zip(slots, choices, strict=True) if c.token_id != NO_TOKEN]
        self.tables.append([slot for slot, _ in kept], [token_id for _, token_id in kept])
        return dict(zip(slots, choices, strict=True))

    def _choose(self, logits: torch.Tensor, slots: list[int]) -> list[Choice]:
        """Rank 0 samples; the others hear the tokens."""
        if self.comm.rank == 0:
            states = [state for slot in slots if (state := self.tables.states[slot]) is not None]
            choices = choose(logits.float().cpu().numpy(), states)
            if self.comm.size > 1:
                self.comm.broadcast(torch.tensor([c.token_id for c in choices]))
            return choices
        heard = self.comm.broadcast(torch.empty(len(slots), dtype=torch.int64))
        return [Choice(token_id) for token_id in heard.tolist()]

    @staticmethod
    def _sampled(slot: int, chosen: dict[int, Choice], errors: dict[int, ErrorDetail]) -> SampledToken:
        if slot in errors:
            return SampledToken(slot, NO_TOKEN, error=errors[slot])
        choice = chosen[slot]
        return SampledToken(slot, choice.token_id, choice.logprobs, choice.error)


def choose(logits_np: np.ndarray, states: list[SamplerState]) -> list[Choice]:
    """One choice per row of logits; whatever one row makes the sampler raise becomes that row's error."""
    try:
        choices = sample(logits_np, states)
    except Exception:
        choices = [_choose_alone(row, state) for row, state in zip(logits_np, states, strict=True)]
    return [c if c.error is None else Choice(NO_TOKEN, error=c.error) for c in choices]


def _choose_alone(row: np.ndarray, state: SamplerState) -> Choice:
    try:
        return sample(row[None], [state])[0]
    except Exception as error:
        return Choice(NO_TOKEN, error=InternalError(f"sampling: {type(error).__name__}: {error}").detail())
