"""`Stream`: one request's output between the session that receives it and the client that reads it."""

from __future__ import annotations

import asyncio
from collections import deque

from octavo.errors import OctavoError
from octavo.gateway.cursor import SequenceCursor
from octavo.gateway.link import WorkerLink
from octavo.request import FINISH_ABORT, Emission, Request

MAX_HELD = 4096
EMISSION_BYTES = 64
TOKEN_BYTES = 16


def size_of(emission: Emission) -> int:
    """About how many bytes a waiting emission takes."""
    size = EMISSION_BYTES + TOKEN_BYTES * len(emission.token_ids)
    if emission.logprobs:
        size += sum(2 * TOKEN_BYTES * (1 + len(entry.top_ids)) for entry in emission.logprobs)
    return size


class Stream:
    """Ordered, deduplicated emissions of one request, with a bounded buffer for a client that does not read.

    The writer side (`put`, `fail`, `place`) belongs to `Streams`; the reader awaits `get`.  Exactly one ending reaches
    the reader: every sequence has ended, or one error after all that came before it.
    """

    __slots__ = (
        "_buffered_bytes", "_error", "_pending", "_wake", "cursors", "is_accepted", "is_paused", "last_heard_s", "link",
        "num_asked", "request",
    )  # fmt: skip

    def __init__(self, request: Request) -> None:
        self.request = request
        self.link: WorkerLink | None = None
        self.cursors = {s.index: SequenceCursor(s.index, s.output_token_ids) for s in request.sequences}
        self.is_accepted = False
        self.is_paused = False
        self.last_heard_s = 0.0
        self.num_asked = 0
        self._pending: deque[Emission] = deque()
        self._buffered_bytes = 0
        self._error: OctavoError | None = None
        self._wake = asyncio.Event()

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def buffered_bytes(self) -> int:
        return self._buffered_bytes

    @property
    def is_complete(self) -> bool:
        """Whether every sequence has ended."""
        return all(cursor.is_ended for cursor in self.cursors.values())

    @property
    def is_over(self) -> bool:
        """Whether nothing more can arrive."""
        return self._error is not None or self.is_complete

    @property
    def gaps(self) -> dict[int, int]:
        """Next index of each sequence that holds emissions ahead of a gap."""
        return {c.sequence: c.next_index for c in self.cursors.values() if c.has_gap}

    @property
    def open_indexes(self) -> dict[int, int]:
        """Next index of each sequence that has not ended."""
        return {c.sequence: c.next_index for c in self.cursors.values() if not c.is_ended}

    def is_known(self, emission: Emission) -> bool:
        """Whether every token of an emission has arrived before."""
        cursor = self.cursors.get(emission.sequence)
        end = emission.index_from + len(emission.token_ids)
        return cursor is not None and bool(emission.token_ids) and end <= cursor.next_index

    def put(self, emission: Emission) -> bool:
        """Take an emission of the current attempt; return whether it left a gap that was not there before."""
        cursor = self.cursors.get(emission.sequence)
        if cursor is None or self.is_over:
            return False
        had_gap = cursor.has_gap
        for ready in cursor.accept(emission):
            self.num_asked = 0
            self._pending.append(ready)
            self._buffered_bytes += size_of(ready)
            self._wake.set()
        return cursor.has_gap and not had_gap

    def fail(self, error: OctavoError) -> None:
        """End the stream with an error, unless it is over already."""
        if not self.is_over:
            self._error = error
            self._wake.set()

    def end_sequence(self, sequence: int, reason: str = FINISH_ABORT) -> None:
        """The reader wants no more of a sequence."""
        self.cursors[sequence].end(reason)
        self._wake.set()

    async def get(self) -> list[Emission]:
        """All that has arrived since the last call, waiting for at least one emission; empty at the end.

        Raises the stream's error after everything before it was returned.
        """
        while not self._pending:
            if self._error is not None:
                raise self._error
            if self.is_complete:
                return []
            self._wake.clear()
            await self._wake.wait()
        out = list(self._pending)
        self._pending.clear()
        self._buffered_bytes = 0
        return out

    def check_integrity(self) -> None:
        for cursor in self.cursors.values():
            cursor.check_integrity()
        assert self._buffered_bytes == sum(size_of(e) for e in self._pending), "buffered bytes drifted"
