"""`SequenceCursor`: puts the emissions of one sequence in order, whatever the transport lost, doubled or swapped."""

from __future__ import annotations

import msgspec

from octavo.request import Emission


class SequenceCursor:
    """Position in one sequence's output.

    `journal` are the token ids accepted so far, so `next_index` is its length.  Emissions ahead of a gap are held
    until the gap is filled.  Pure: no clock, no I/O.
    """

    __slots__ = ("_held", "finish_reason", "journal", "sequence")

    def __init__(self, sequence: int, journal: list[int] | None = None) -> None:
        self.sequence = sequence
        self.journal: list[int] = list(journal or ())
        self.finish_reason: str | None = None
        self._held: dict[int, Emission] = {}

    @property
    def next_index(self) -> int:
        return len(self.journal)

    @property
    def is_ended(self) -> bool:
        return self.finish_reason is not None

    @property
    def has_gap(self) -> bool:
        """Whether emissions are held because an earlier one is missing."""
        return bool(self._held)

    @property
    def num_held(self) -> int:
        return len(self._held)

    def accept(self, emission: Emission) -> list[Emission]:
        """Take one emission; return what is now in order: cut to unknown indexes, possibly with held ones after it."""
        if self.is_ended:
            return []
        if emission.error is not None:
            # A failed sequence ends wherever it is: tokens that a gap hides no longer matter.
            return [self._take(msgspec.structs.replace(emission, token_ids=[], logprobs=None))]
        if emission.index_from > self.next_index:
            known = self._held.get(emission.index_from)
            if known is None or len(known.token_ids) <= len(emission.token_ids):
                self._held[emission.index_from] = emission
            return []
        ready = self._cut(emission)
        out = [self._take(ready)] if ready is not None else []
        return out + self._unhold() if self._held else out

    def end(self, finish_reason: str) -> None:
        """Close the sequence from this side (stop string, abort): later emissions are dropped."""
        self.finish_reason = self.finish_reason or finish_reason
        self._held.clear()

    def check_integrity(self) -> None:
        assert not (self.is_ended and self._held), "an ended sequence holds emissions"
        assert all(index > self.next_index for index in self._held), "a held emission is no longer ahead of a gap"

    def _cut(self, emission: Emission) -> Emission | None:
        known = self.next_index - emission.index_from
        if known == 0:
            return emission if emission.token_ids or emission.finish_reason or emission.num_cached_tokens >= 0 else None
        if known > len(emission.token_ids):
            return None
        tail = emission.token_ids[known:]
        if not tail and emission.finish_reason is None:
            return None
        logprobs = emission.logprobs[known:] if emission.logprobs is not None else None
        return msgspec.structs.replace(emission, index_from=self.next_index, token_ids=tail, logprobs=logprobs)

    def _take(self, emission: Emission) -> Emission:
        self.journal.extend(emission.token_ids)
        if emission.finish_reason is not None or emission.error is not None:
            self.end(emission.finish_reason or "error")
        return emission

    def _unhold(self) -> list[Emission]:
        out: list[Emission] = []
        while self._held and not self.is_ended:
            first = min(self._held)
            if first > self.next_index:
                break
            ready = self._cut(self._held.pop(first))
            if ready is not None:
                out.append(self._take(ready))
        return out
