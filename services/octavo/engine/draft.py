"""`Draft`: a step while it is being planned, kept per sequence so that a preemption can take one out again.

`Flight` is what the scheduler remembers of a plan until its result comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from octavo.engine.plan import BlockCopy, SampledToken, SlotAdmit, SlotWork, StepPlan, TableGrow
from octavo.engine.sequence import Sequence
from octavo.errors import InternalError


class FlightRow(NamedTuple):
    """One row of work: `admission` tells whether it still belongs to the sequence's current blocks."""

    sequence: Sequence
    admission: int
    work: SlotWork


@dataclass(slots=True)
class Flight:
    """A plan whose result has not come."""

    step: int
    rows: list[FlightRow] = field(default_factory=list)

    def match(self, sampled: list[SampledToken]) -> list[SampledToken | None]:
        """What came of each row: None for one that was not to be sampled and has not failed.

        Raises `InternalError` when a sampled row has no entry, or an entry has no row.
        """
        out: list[SampledToken | None] = []
        at = 0
        for row in self.rows:
            entry = sampled[at] if at < len(sampled) else None
            if entry is None or entry.slot != row.work.slot or not (row.work.is_sampled or entry.error):
                if row.work.is_sampled:
                    break
                entry = None
            at += entry is not None
            out.append(entry)
        if at < len(sampled) or len(out) < len(self.rows):
            planned = [row.work.slot for row in self.rows if row.work.is_sampled]
            raise InternalError(f"step {self.step} sampled slots {[s.slot for s in sampled]}, planned {planned}")
        return out


class Draft:
    """A plan in the making: the token budget left, and each sequence's part.

    `is_short` says that running sequences lacked blocks, so that nothing should be admitted.
    """

    def __init__(self, step: int, budget: int) -> None:
        self.step = step
        self.budget = budget
        self.has_prefill = False
        self.is_short = False
        self.work: dict[Sequence, SlotWork] = {}
        self.admits: dict[Sequence, SlotAdmit] = {}
        self._grows: dict[Sequence, list[TableGrow]] = {}
        self._copies: dict[Sequence, list[BlockCopy]] = {}

    def add_work(self, sequence: Sequence, num_tokens: int, is_sampled: bool) -> None:
        """Compute the next `num_tokens` of a sequence; at most one piece of work per sequence and step."""
        self.work[sequence] = SlotWork(sequence.slot, sequence.num_computed, num_tokens, is_sampled)
        self.budget -= num_tokens
        self.has_prefill |= num_tokens > 1

    def admit(self, sequence: Sequence, admit: SlotAdmit) -> None:
        self.admits[sequence] = admit

    def grow(self, sequence: Sequence, grow: TableGrow) -> None:
        self._grows.setdefault(sequence, []).append(grow)

    def copy(self, sequence: Sequence, copy: BlockCopy) -> None:
        """`sequence` owns the target."""
        self._copies.setdefault(sequence, []).append(copy)

    def computed_before(self, sequence: Sequence) -> int:
        """Tokens of a sequence that earlier steps have computed."""
        work = self.work.get(sequence)
        return sequence.num_computed if work is None else work.start

    def drop(self, sequence: Sequence) -> bool:
        """Take a sequence out and undo its counts; True when it was admitted by this draft."""
        work = self.work.pop(sequence, None)
        if work is not None:
            self.budget += work.num_tokens
            sequence.num_pending -= work.is_sampled
        self._grows.pop(sequence, None)
        self._copies.pop(sequence, None)
        return self.admits.pop(sequence, None) is not None

    def finish(self, released: list[int]) -> StepPlan:
        """The plan, releasing the slots `released` first."""
        return StepPlan(
            step=self.step,
            release=released,
            admit=list(self.admits.values()),
            grow=[grow for grows in self._grows.values() for grow in grows],
            copies=[copy for copies in self._copies.values() for copy in copies],
            work=list(self.work.values()),
        )
