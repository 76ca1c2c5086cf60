"""`SlotTable`: the runner's slots, each a sequence's from admission to release."""

from __future__ import annotations

import heapq

from octavo.errors import InternalError


class SlotTable:
    """Hands out the lowest free slot, and collects the released ones that the runner has to be told of."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._free = list(range(num_slots))
        self._released: list[int] = []

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        """The lowest free slot; there must be one."""
        return heapq.heappop(self._free)

    def give(self, slot: int, is_known_to_runner: bool) -> None:
        """Free a slot; the next plan releases it if the runner knows of it."""
        heapq.heappush(self._free, slot)
        if is_known_to_runner:
            self._released.append(slot)

    def take_released(self) -> list[int]:
        """Slots to release with the next plan, before its admissions."""
        released, self._released = self._released, []
        return released

    def check_integrity(self, used: list[int]) -> None:
        """Raise `InternalError` unless `used` and the free slots are all slots, each once."""
        if sorted([*used, *self._free]) != list(range(self.num_slots)):
            raise InternalError(f"slots: {sorted(used)} used, {len(self._free)} free of {self.num_slots}")
