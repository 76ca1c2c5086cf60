"""`Reply`: one request's growing answer, from emissions to text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.errors import ErrorDetail
from octavo.llm.frontend import Prepared
from octavo.llm.output import CompletionOutput, Logprob, RequestOutput
from octavo.request import FINISH_ABORT, FINISH_ERROR, Emission, TokenLogprobs
from octavo.text.output import OutputAssembler

if TYPE_CHECKING:
    from octavo.text.tokenizer import Tokenizer


TOKENS_AT_ONCE = 16
"""Tokens without stop strings to look for, nor logprobs, are turned into text in batches of so many."""


class Reply:
    """Takes the emissions of one request and gives cumulative outputs.

    The caller aborts the sequences that `push` reports as stopped by a stop string.
    """

    def __init__(self, prepared: Prepared, tokenizer: Tokenizer) -> None:
        request = prepared.request
        self.request_id = request.request_id
        self.attempt = request.attempt
        self._prompt = prepared.prompt
        self._prompt_token_ids = list(request.prompt_token_ids)
        self._tokenizer = tokenizer
        has_logprobs = request.params.logprobs is not None
        self._assemblers = {s.index: OutputAssembler(tokenizer, request.params) for s in request.sequences}
        self._outputs = {
            s.index: CompletionOutput(
                s.index,
                "",
                [],
                logprobs=[] if has_logprobs else None,
                cumulative_logprob=0.0 if has_logprobs else None,
            )
            for s in request.sequences
        }
        self._waits = not request.params.stop and not has_logprobs
        self._waiting: dict[int, Emission] = {}
        # Replies that began together do not all make text in the same step.
        self._num_at_once = TOKENS_AT_ONCE + hash(self.request_id) % TOKENS_AT_ONCE
        self._num_open = len(self._outputs)
        self._num_cached_tokens = 0
        self._error: ErrorDetail | None = None

    @property
    def is_finished(self) -> bool:
        return not self._num_open

    def push(self, emission: Emission) -> bool:
        """Take one emission; True when a stop string ended its sequence while the engine still runs it."""
        if self._waits:
            waiting = self._waiting.get(emission.sequence)
            if waiting is not None and waiting.index_from + len(waiting.token_ids) == emission.index_from:
                waiting.token_ids += emission.token_ids
                if emission.finish_reason is None and len(waiting.token_ids) < self._num_at_once:
                    return False
                emission.index_from, emission.token_ids = waiting.index_from, waiting.token_ids
                del self._waiting[emission.sequence]
            elif waiting is None and emission.finish_reason is None and emission.num_cached_tokens < 0:
                self._waiting[emission.sequence] = emission
                return False
        return self._assemble(emission)

    def _assemble(self, emission: Emission) -> bool:
        """Turn an emission into text; as `push`."""
        output = self._outputs[emission.sequence]
        if output.is_finished:
            return False
        if emission.num_cached_tokens >= 0:
            self._num_cached_tokens = max(self._num_cached_tokens, emission.num_cached_tokens)
        if emission.error is not None:
            self._error = emission.error
        delta = self._assemblers[emission.sequence].push(emission)
        output.text += delta.text
        output.token_ids += delta.token_ids
        for token_id, logprobs in zip(delta.token_ids, delta.logprobs or (), strict=False):
            self._add_logprobs(output, token_id, logprobs)
        output.finish_reason = delta.finish_reason
        self._num_open -= output.is_finished
        output.stop_reason = delta.stop_reason
        return output.is_finished and emission.finish_reason is None

    def fail(self, error: ErrorDetail) -> None:
        """End every open sequence with `error`."""
        self._error = error
        for output in self._open():
            output.finish_reason = FINISH_ERROR
        self._num_open = 0

    def abort(self, sequences: list[int] | None = None) -> None:
        """End the open sequences (or those named) as aborted, with the text that was held back."""
        self._catch_up()
        for index in [o.index for o in self._open() if sequences is None or o.index in sequences]:
            num_tokens = self._assemblers[index].num_tokens
            self.push(Emission(self.request_id, self.attempt, index, num_tokens, [], finish_reason=FINISH_ABORT))

    def output(self) -> RequestOutput:
        """A copy of what there is so far."""
        self._catch_up()
        outputs = [
            CompletionOutput(
                o.index,
                o.text,
                list(o.token_ids),
                None if o.logprobs is None else list(o.logprobs),
                o.finish_reason,
                o.stop_reason,
                o.cumulative_logprob,
            )
            for o in self._outputs.values()
        ]
        return RequestOutput(
            self.request_id,
            self._prompt,
            self._prompt_token_ids,
            outputs,
            self._num_cached_tokens,
            self.is_finished,
            self._error,
        )

    def _catch_up(self) -> None:
        """Make text of every token that has come."""
        while self._waiting:
            self._assemble(self._waiting.popitem()[1])

    def _open(self) -> list[CompletionOutput]:
        return [output for output in self._outputs.values() if not output.is_finished]

    def _add_logprobs(self, output: CompletionOutput, token_id: int, logprobs: TokenLogprobs) -> None:
        if output.logprobs is None or output.cumulative_logprob is None:
            return
        piece = self._tokenizer.piece
        found = {
            other: Logprob(value, rank, piece(other))
            for rank, (other, value) in enumerate(zip(logprobs.top_ids, logprobs.top_logprobs, strict=True), 1)
        }
        found[token_id] = Logprob(logprobs.logprob, logprobs.rank, piece(token_id))
        output.logprobs.append(found)
        output.cumulative_logprob += logprobs.logprob
