"""`SlotTables`: what a rank knows of its sequences, by slot: token ids, lengths, block tables, sampler states."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from octavo.engine.plan import SlotAdmit, TableGrow
from octavo.engine.sampling.state import SamplerState
from octavo.errors import ErrorDetail, InternalError, InvalidInput

Counts = list[int] | npt.NDArray[np.int64]


class SlotTables:
    """Owns the tables.  A slot is a row of each, from admission to release.

    `token_ids` [num_slots, max_len] and one `block_tables[group]` [num_slots, max_blocks] are on the device; lengths,
    states and errors are on the host, which plans with them.  A sequence that cannot be admitted keeps its slot with an
    error, which every sample of it returns.
    """

    def __init__(
        self,
        num_slots: int,
        max_len: int,
        block_size: int,
        num_groups: int,
        *,
        vocab_size: int,
        eos_token_ids: frozenset[int],
        device: torch.device,
    ) -> None:
        self.max_len, self.block_size = max_len, block_size
        self.vocab_size, self.eos_token_ids = vocab_size, eos_token_ids
        self.device = device
        self.max_blocks = -(-max_len // block_size)
        self._allocate(num_slots, num_groups)
        self.num_tokens: Counts = [0] * num_slots
        self.num_blocks: list[Counts] = [[0] * num_slots for _ in range(num_groups)]
        self.states: list[SamplerState | None] = [None] * num_slots
        self.errors: dict[int, ErrorDetail] = {}

    def _allocate(self, num_slots: int, num_groups: int) -> None:
        """Make the tables of the device."""
        self.token_ids = torch.zeros(num_slots, self.max_len, dtype=torch.int64, device=self.device)
        self.block_tables = [
            torch.zeros(num_slots, self.max_blocks, dtype=torch.int64, device=self.device) for _ in range(num_groups)
        ]

    def _put_tokens(self, admit: SlotAdmit) -> None:
        """Put the known tokens of an admitted sequence into its slot."""
        ids = admit.token_ids
        self.token_ids[admit.slot, : len(ids)] = torch.tensor(ids, dtype=torch.int64)

    def _put_blocks(self, slot: int, group: int, start: int, block_ids: list[int]) -> None:
        """Put blocks into a slot's table from column `start` on."""
        self.block_tables[group][slot, start : start + len(block_ids)] = torch.tensor(block_ids, dtype=torch.int64)

    def release(self, slot: int) -> None:
        """Forget a slot's sequence; releasing an empty slot does nothing."""
        self.states[slot] = None
        self.num_tokens[slot] = 0
        self.errors.pop(slot, None)
        for counts in self.num_blocks:
            counts[slot] = 0

    def admit(self, admit: SlotAdmit) -> None:
        """Fill a free slot.  What is wrong with the sequence becomes its error; a taken slot raises `InternalError`."""
        slot, ids = admit.slot, admit.token_ids
        if self.states[slot] is not None or slot in self.errors:
            raise InternalError(f"slot {slot} is taken")
        problem = self._problem(admit)
        if problem is None:
            try:
                self.states[slot] = SamplerState(
                    admit.params,
                    ids[: admit.num_prompt_tokens],
                    ids[admit.num_prompt_tokens :],
                    admit.sequence,
                    self.eos_token_ids,
                    self.vocab_size,
                )
            except Exception as error:
                problem = InternalError(f"sampling settings: {type(error).__name__}: {error}").detail()
        if problem is not None:
            self.errors[slot] = problem
            return
        self._put_tokens(admit)
        self.num_tokens[slot] = len(ids)
        for group, block_ids in enumerate(admit.block_tables):
            self._extend(slot, group, block_ids)

    def _problem(self, admit: SlotAdmit) -> ErrorDetail | None:
        ids = admit.token_ids
        if not 1 <= len(ids) <= self.max_len:
            return InvalidInput(f"got {len(ids)} tokens; must be from 1 to {self.max_len}", param="prompt").detail()
        if min(ids) < 0 or max(ids) >= self.vocab_size:
            text = f"got token ids from {min(ids)} to {max(ids)}; must be from 0 to {self.vocab_size - 1}"
            return InvalidInput(text, param="prompt").detail()
        if len(admit.block_tables) != len(self.num_blocks):
            return InternalError(f"{len(admit.block_tables)} block tables; {len(self.num_blocks)} groups").detail()
        return None

    def grow(self, grow: TableGrow) -> None:
        """Append blocks to a slot's table."""
        if grow.slot not in self.errors:
            self._extend(grow.slot, grow.group, grow.block_ids)

    def _extend(self, slot: int, group: int, block_ids: list[int]) -> None:
        start = self.num_blocks[group][slot]
        end = start + len(block_ids)
        if end > self.max_blocks:
            raise InternalError(f"slot {slot}: {end} blocks; at most {self.max_blocks}")
        if block_ids:
            self._put_blocks(slot, group, start, block_ids)
        self.num_blocks[group][slot] = end

    def append(self, slots: list[int], token_ids: list[int]) -> None:
        """Add a sampled token to each slot, on the device and to its sampler state.

        A slot whose sequence has reached the longest length keeps it: the scheduler ends it with this token.
        """
        kept, ids = [], []
        for slot, token_id in zip(slots, token_ids, strict=True):
            state = self.states[slot]
            if state is None:
                raise InternalError(f"slot {slot} is empty")
            state.append(token_id)
            if self.num_tokens[slot] < self.max_len:
                kept.append(slot)
                ids.append(token_id)
        if kept:
            at = torch.tensor([slot * self.max_len + self.num_tokens[slot] for slot in kept])
            self.token_ids.view(-1).index_copy_(0, at.to(self.device), torch.tensor(ids).to(self.device))
            for slot in kept:
                self.num_tokens[slot] += 1

    def check_integrity(self) -> None:
        """Raise `InternalError` when an empty slot still holds something."""
        for slot, state in enumerate(self.states):
            is_empty = state is None and slot not in self.errors
            if is_empty and (self.num_tokens[slot] or any(counts[slot] for counts in self.num_blocks)):
                raise InternalError(f"slot {slot} is empty but holds tokens or blocks")
