"""`DeviceTables`: slot tables that live on a GPU; the host sends differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from octavo.engine.plan import SlotAdmit
from octavo.engine.runner.slots import SlotTables
from octavo.kernels.staging import Staging
from octavo.sampling_params import SamplingParams

NUM_SETTINGS = 4

Int32Array = npt.NDArray[np.int32]


def needs_host(params: SamplingParams) -> bool:
    """Whether sampling with `params` takes more than the device does: the highest logit, or that plus noise."""
    return (
        params.logprobs is not None
        or params.min_tokens > 0
        or bool(params.logit_bias)
        or params.repetition_penalty != 1.0
        or params.frequency_penalty != 0.0
        or params.presence_penalty != 0.0
        or (not params.is_greedy and (params.seed is None or params.top_k > 0 or params.top_p < 1 or params.min_p > 0))
    )


class DeviceTables(SlotTables):
    """Owns one int32 array on the device, `state`, cut into tables with a row per slot.

    `last_tokens` [num_slots + 1] is the token that each slot sampled last; `settings` [4, num_slots + 1] the
    float32 bits of the temperature (0: greedy), low and high word of the seed, and the sequence; `block_tables[group]`
    [num_slots + 1, max_blocks].  The last row is nobody's: rows that pad a step read and write it.  Changes are
    collected, and go to the device with `flush`, once a step.  Tokens known at admission stay on the host (`known_np`).
    """

    def __init__(self, num_slots: int, max_len: int, block_size: int, num_groups: int, **others: Any) -> None:
        super().__init__(num_slots, max_len, block_size, num_groups, **others)
        self.num_tokens = self.num_tokens_np = np.zeros(num_slots, dtype=np.int64)
        self.num_blocks_np = np.zeros((num_groups, num_slots), dtype=np.int64)
        self.num_blocks = list(self.num_blocks_np)
        self.num_known_np = np.zeros(num_slots, dtype=np.int64)

    def _allocate(self, num_slots: int, num_groups: int) -> None:
        num_rows = num_slots + 1
        self.padding_slot = num_slots
        head = num_rows * (1 + NUM_SETTINGS)
        size = head + num_groups * num_rows * self.max_blocks
        max_updates = num_slots * (8 + num_groups * self.max_blocks)
        self._updates = Staging(2 * max_updates, self.device)
        self.state = torch.zeros(size, dtype=torch.int32, device=self.device)
        self.last_tokens = self.state[:num_rows]
        self.settings = self.state[num_rows:head].view(NUM_SETTINGS, num_rows)
        self.block_tables = [
            self.state[head + g * num_rows * self.max_blocks :][: num_rows * self.max_blocks].view(num_rows, -1)
            for g in range(num_groups)
        ]
        self._head = head
        self._num_rows = num_rows
        self._pending: list[tuple[Int32Array, Int32Array]] = []
        self.known_np: list[Int32Array] = [np.zeros(0, dtype=np.int32)] * num_slots
        self.is_host_sampled_np = np.zeros(num_slots, dtype=bool)

    def _put_tokens(self, admit: SlotAdmit) -> None:
        slot, params = admit.slot, admit.params
        self.known_np[slot] = np.array(admit.token_ids, dtype=np.int32)
        self.num_known_np[slot] = len(admit.token_ids)
        self.is_host_sampled_np[slot] = needs_host(params)
        seed = params.seed or 0
        words = np.array([0, seed & 0xFFFFFFFF, seed >> 32, admit.sequence & 0xFFFFFFFF], dtype=np.uint32)
        if not params.is_greedy:
            words[:1] = np.array([params.temperature], dtype=np.float32).view(np.uint32)
        index = self._num_rows * (1 + np.arange(NUM_SETTINGS, dtype=np.int32)) + slot
        self._pending.append((index.astype(np.int32), words.view(np.int32)))

    def _put_blocks(self, slot: int, group: int, start: int, block_ids: list[int]) -> None:
        first = self._head + (group * self._num_rows + slot) * self.max_blocks + start
        self._pending.append(
            (np.arange(first, first + len(block_ids), dtype=np.int32), np.array(block_ids, dtype=np.int32))
        )

    def set_padding_block(self, block_id: int) -> None:
        """The block that padding rows write to; it must be nobody's."""
        for group in range(len(self.num_blocks)):
            self._put_blocks(self.padding_slot, group, 0, [block_id])
        self.flush()

    def set_last_tokens(self, slots: list[int], token_ids: list[int]) -> None:
        """Replace what the device sampled for these slots; goes with the next `flush`."""
        self._pending.append((np.array(slots, dtype=np.int32), np.array(token_ids, dtype=np.int32)))

    def flush(self) -> None:
        """Bring the device up to date, in the order of its stream."""
        from octavo.kernels.triton.slot import apply_updates

        if not self._pending:
            return
        indices = np.concatenate([index for index, _ in self._pending])
        values = np.concatenate([value for _, value in self._pending])
        self._pending.clear()
        buffer, num = self._updates.begin(), len(indices)
        buffer[:num], buffer[num : 2 * num] = indices, values
        apply_updates(self.state, self._updates.send(2 * num).view(2, num))

    def advance(self, slots: npt.NDArray[np.int64]) -> None:
        """Note that the device samples a token for `slots`; at the longest length there is no room for it."""
        self.num_tokens_np[slots] = np.minimum(self.num_tokens_np[slots] + 1, self.max_len)
