"""`Streams`: owner of all live streams of this gateway, and listener of all its sessions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from octavo.errors import Aborted, InternalError, OctavoError, UpstreamLost, from_detail
from octavo.gateway.link import WorkerLink
from octavo.gateway.stream import MAX_HELD, Stream
from octavo.request import FINISH_ABORT, FINISH_ERROR, Emission, Request, SequenceInput
from octavo.rpc.session import SilentRequest

SILENT_S = 1.5
MAX_ASKED = 5
"""Resends (one per heartbeat) that may go unanswered before a stream is given up."""
HARD_FACTOR = 8
HARD_MIN_BYTES = 1 << 20
"""A paused stream whose buffer still grows beyond the larger of HARD_FACTOR bounds and this is ended.  What was on its
way when the pause was asked for still arrives, however small the bound."""


class Streams:
    """Live streams by request id.

    Verbs: `open`, `place` (bind to a worker's session and attempt), `get` (read), `end_sequence`, `close`, `fail`,
    `fail_all`; sessions call `on_emissions`, `on_heartbeat` and `on_lost`.
    """

    def __init__(self, max_buffer_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_buffer_bytes = max_buffer_bytes
        self._clock = clock
        self._streams: dict[str, Stream] = {}
        self.num_resends = 0
        self.num_duplicates = 0
        self.num_pauses = 0

    def __len__(self) -> int:
        return len(self._streams)

    def open(self, request: Request) -> Stream:
        """A new stream for a request whose id no live stream has."""
        assert request.request_id not in self._streams, "request ids are minted once"
        stream = Stream(request)
        self._streams[request.request_id] = stream
        return stream

    def place(self, stream: Stream, link: WorkerLink, attempt: int) -> None:
        """Bind a stream to the session that is about to get its submit; frames of older attempts are dropped.

        The request is rewritten to go on after what has arrived: an emitted token is never sampled again.
        """
        stream.request.attempt = attempt
        stream.request.sequences = [
            SequenceInput(c.sequence, list(c.journal)) for c in stream.cursors.values() if not c.is_ended
        ]
        stream.link = link
        stream.is_accepted = False
        stream.last_heard_s = self._clock()

    async def get(self, stream: Stream) -> list[Emission]:
        """`Stream.get`; reading also resumes a stream that was paused."""
        out = await stream.get()
        if stream.is_paused and not stream.is_over and stream.link is not None:
            stream.is_paused = False
            stream.link.pause(stream.request_id, stream.request.attempt, False)
        return out

    def end_sequence(self, stream: Stream, sequence: int, reason: str) -> None:
        """Stop one sequence at the worker (its text hit a stop string)."""
        if stream.cursors[sequence].is_ended:
            return
        stream.end_sequence(sequence, reason)
        if stream.link is not None and not stream.is_complete:
            stream.link.abort(stream.request_id, stream.request.attempt, [sequence])
        elif stream.link is not None:
            stream.link.abort(stream.request_id, stream.request.attempt)

    def close(self, stream: Stream) -> None:
        """Forget a stream; the worker stops at once when it has not ended.  Closing twice does nothing."""
        if self._streams.pop(stream.request_id, None) is None:
            return
        if stream.link is not None and not stream.is_complete:
            stream.link.abort(stream.request_id, stream.request.attempt)
        stream.fail(Aborted("the request was closed"))

    def fail(self, stream: Stream, error: OctavoError) -> None:
        """End one stream with an error for its reader, at the worker too; nothing when it is over already."""
        if stream.is_over:
            return
        stream.fail(error)
        if stream.link is not None:
            stream.link.abort(stream.request_id, stream.request.attempt)

    def fail_all(self, error: OctavoError) -> None:
        """End every live stream with an error (shutdown)."""
        for stream in list(self._streams.values()):
            self.fail(stream, error)

    def on_emissions(self, link: WorkerLink, emissions: Sequence[Emission]) -> None:
        now = self._clock()
        for emission in emissions:
            stream = self._streams.get(emission.request_id)
            if stream is None or stream.link is not link or stream.request.attempt != emission.attempt:
                continue
            stream.last_heard_s = now
            if emission.error is not None or emission.finish_reason == FINISH_ERROR:
                detail = emission.error
                self.fail(stream, from_detail(detail) if detail else InternalError("the engine failed the request"))
                continue
            if emission.finish_reason == FINISH_ABORT:
                self.fail(stream, Aborted(f"worker {link.record.worker_id} ended the request"))
                continue
            self.num_duplicates += stream.is_known(emission)
            if stream.put(emission):
                self._resend(stream, stream.gaps)
            self._bound(stream)

    def on_heartbeat(self, link: WorkerLink, silent: Sequence[SilentRequest]) -> None:
        """Compare what the worker sent with what arrived, for every stream of the session that was silent."""
        now = self._clock()
        states = {(s.request_id, s.attempt): s for s in silent}
        for stream in list(self._streams.values()):
            if stream.link is not link or not stream.is_accepted or stream.is_over:
                continue
            if now - stream.last_heard_s < SILENT_S:
                continue
            state = states.get((stream.request_id, stream.request.attempt))
            behind = self._behind(stream, state)
            if not behind:
                continue
            stream.num_asked += 1
            if stream.num_asked > MAX_ASKED:
                self.fail(stream, UpstreamLost(f"worker {link.record.worker_id} no longer knows the request"))
            else:
                self._resend(stream, behind)

    def on_lost(self, link: WorkerLink, reason: str) -> None:
        message = f"worker {link.record.worker_id} was lost: {reason}"
        for stream in list(self._streams.values()):
            if stream.link is link and stream.is_accepted:
                stream.fail(UpstreamLost(message))

    def check_integrity(self) -> None:
        for request_id, stream in self._streams.items():
            assert stream.request_id == request_id, "a stream is filed under another request id"
            stream.check_integrity()

    def _behind(self, stream: Stream, state: SilentRequest | None) -> dict[int, int]:
        """Sequences of which the worker has sent more than arrived; all open ones when it no longer runs them."""
        if state is None or state.state == "ended":
            return stream.open_indexes
        ahead = {s: i for s, i in stream.open_indexes.items() if state.sent.get(s, 0) > i}
        return ahead | stream.gaps

    def _resend(self, stream: Stream, from_index: dict[int, int]) -> None:
        if stream.link is not None:
            self.num_resends += 1
            stream.link.resend(stream.request_id, stream.request.attempt, from_index)

    def _bound(self, stream: Stream) -> None:
        held = sum(cursor.num_held for cursor in stream.cursors.values())
        size = stream.buffered_bytes
        if held > MAX_HELD:
            self.fail(stream, UpstreamLost("a gap in the token stream was not filled"))
        elif size > max(HARD_FACTOR * self._max_buffer_bytes, HARD_MIN_BYTES):
            self.fail(stream, Aborted(f"the client left {size} bytes unread; the stream was ended"))
        elif size > self._max_buffer_bytes and not stream.is_paused and not stream.is_over and stream.link is not None:
            stream.is_paused = True
            self.num_pauses += 1
            stream.link.pause(stream.request_id, stream.request.attempt, True)
