"""`Generation`: one running request as its edge reads it: text deltas, counts, and exactly one ending."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable

from octavo.errors import OctavoError
from octavo.gateway.job import OutputDelta
from octavo.gateway.observe import GatewayMetrics
from octavo.gateway.stream import Stream
from octavo.gateway.streams import Streams
from octavo.kv.record import WorkerRecord
from octavo.request import Emission
from octavo.text.output import OutputAssembler
from octavo.text.tokenizer import Tokenizer


class Generation:
    """Created by `Frontend.start` after the first worker event.  Iterate `batches`, then `close` (also on errors)."""

    def __init__(
        self,
        streams: Streams,
        stream: Stream,
        tokenizer: Tokenizer,
        metrics: GatewayMetrics,
        model: str,
        release: Callable[[], None],
    ) -> None:
        self.model = model
        self.request = stream.request
        self.record: WorkerRecord | None = None
        self.kv_path = ""
        self.num_cached_tokens = 0
        self.num_output_tokens = 0
        self.created_unix_s = int(time.time())
        self._streams = streams
        self.stream = stream
        self._release = release
        self._metrics = metrics.request(model, len(stream.request.prompt_token_ids))
        params = stream.request.params
        self._assemblers = {index: OutputAssembler(tokenizer, params) for index in stream.cursors}
        self._first: list[OutputDelta] | None = None
        self._is_closed = False

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def prompt_token_ids(self) -> list[int]:
        return self.request.prompt_token_ids

    @property
    def fingerprint(self) -> str:
        """The numerics fingerprint of the worker that computes this request."""
        return self.record.numerics if self.record is not None else ""

    async def prime(self) -> None:
        """Wait for the first worker event; an error before it is raised here, while headers are still unsent."""
        self._first = await self._read()

    async def batches(self) -> AsyncIterator[list[OutputDelta]]:
        """Deltas as they arrive, several at once when the reader is slower than the worker.

        Ends when every sequence has ended; raises the typed error of a request that failed.
        """
        batch = self._first if self._first is not None else await self._read()
        self._first = None
        while batch is not None:
            yield batch
            batch = await self._read()

    def close(self) -> None:
        """Release the request; a worker that still runs it stops at once.  Closing twice does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._metrics.close()
            self._streams.close(self.stream)
            self._release()

    async def _read(self) -> list[OutputDelta] | None:
        try:
            emissions = await self._streams.get(self.stream)
        except OctavoError as error:
            self._metrics.fail(error)
            raise
        if not emissions:
            return None
        deltas = [delta for emission in emissions if (delta := self._assemble(emission)) is not None]
        self._metrics.batch(sum(len(delta.token_ids) for delta in deltas))
        return deltas

    def _assemble(self, emission: Emission) -> OutputDelta | None:
        assembler = self._assemblers[emission.sequence]
        if emission.num_cached_tokens > 0:
            self.num_cached_tokens = max(self.num_cached_tokens, emission.num_cached_tokens)
        if assembler.is_finished:
            return None
        text = assembler.push(emission)
        self.num_output_tokens += len(text.token_ids)
        if text.finish_reason is not None:
            self._metrics.finish(text.finish_reason)
            self._streams.end_sequence(self.stream, emission.sequence, text.finish_reason)
        return OutputDelta(
            emission.sequence,
            emission.index_from,
            text.text,
            text.token_ids,
            text.logprobs,
            text.finish_reason,
            text.stop_reason,
        )
