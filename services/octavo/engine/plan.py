"""`StepPlan`: what rank 0's scheduler decided for one step, as every rank's runner gets it.

A plan carries differences only.  Sequences live in stable *slots* of the runner's device tables from admission to
release; a plan admits and releases slots, grows block tables, copies blocks, and says how many tokens of which slots
to compute.  It names no token that the runner itself sampled: the runner appends those to the slot, so that step N+1
can be planned while N runs.  Plans are positional msgpack structs: ranks receive them as bytes.
"""

from __future__ import annotations

import msgspec

from octavo.errors import ErrorDetail
from octavo.request import TokenLogprobs
from octavo.sampling_params import SamplingParams


class SlotAdmit(msgspec.Struct, array_like=True):
    """Put a sequence into a slot: all its known token ids (prompt, then outputs so far) and its settings.

    `seed` and `sequence` key the sampling noise; `num_prompt_tokens` splits prompt from output for penalties;
    `block_tables` has one list of block ids per group.
    """

    slot: int
    token_ids: list[int]
    num_prompt_tokens: int
    sequence: int
    params: SamplingParams
    block_tables: list[list[int]]


class TableGrow(msgspec.Struct, array_like=True):
    """Append block ids to a slot's table of one group."""

    slot: int
    group: int
    block_ids: list[int]


class BlockCopy(msgspec.Struct, array_like=True):
    """Copy a whole block (all layers of its group) before the step computes: the partial last block of a fork."""

    source: int
    target: int


class SlotWork(msgspec.Struct, array_like=True):
    """Compute tokens [start, start + num_tokens) of a slot; sample the next token when `is_sampled`."""

    slot: int
    start: int
    num_tokens: int
    is_sampled: bool


class StepPlan(msgspec.Struct, array_like=True):
    """One step.  Order of effects: release, admit, grow, copies, work."""

    step: int
    release: list[int] = []
    admit: list[SlotAdmit] = []
    grow: list[TableGrow] = []
    copies: list[BlockCopy] = []
    work: list[SlotWork] = []

    @property
    def num_tokens(self) -> int:
        return sum(w.num_tokens for w in self.work)


class SampledToken(msgspec.Struct, array_like=True):
    """The token chosen for one slot; `error` set means that this request fails, and only this one."""

    slot: int
    token_id: int
    logprobs: TokenLogprobs | None = None
    error: ErrorDetail | None = None


class StepResult(msgspec.Struct, array_like=True):
    """What rank 0 returns for a plan, in the order of `plan.work`: one entry per sampled slot.

    A slot that failed has an entry with its error also when it was not to be sampled: its blocks hold nothing.
    """

    step: int
    sampled: list[SampledToken]
