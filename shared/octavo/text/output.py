"""`OutputAssembler`: from the emissions of one sequence to the text that a client reads."""

from __future__ import annotations

import msgspec

from octavo.errors import ErrorDetail, InternalError
from octavo.request import FINISH_STOP, Emission, TokenLogprobs
from octavo.sampling_params import SamplingParams
from octavo.text.detokenize import IncrementalDetokenizer
from octavo.text.stop import StopMatcher
from octavo.text.tokenizer import Tokenizer


class TextDelta(msgspec.Struct):
    """What one emission adds for the client.

    `token_ids` and `logprobs` are given out as they arrive, one entry per token; `text` may lag behind them by the
    bytes of an unfinished character and by what may become a stop string.  Over a whole stream nothing is missing.
    """

    text: str = ""
    token_ids: list[int] = []
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    num_cached_tokens: int = -1
    error: ErrorDetail | None = None


class OutputAssembler:
    """Detokenizes one sequence and applies its stop strings; one per sequence.

    Stop strings are looked for once more than `min_tokens` tokens are out.  The token that completes one is the last
    token given out, and the text ends before the string (after it with `include_stop_str_in_output`).  The text of a
    token at which the engine stopped (an end or stop token) is left out by the same rule.  `tokenizer` None, or
    `params.detokenize` False, gives ids without text.
    """

    def __init__(self, tokenizer: Tokenizer | None, params: SamplingParams) -> None:
        self._params = params
        self._detokenizer: IncrementalDetokenizer | None = None
        if tokenizer is not None and params.detokenize:
            self._detokenizer = IncrementalDetokenizer(tokenizer, params.skip_special_tokens)
        self._matcher = StopMatcher(params.stop, params.include_stop_str_in_output)
        self.num_tokens = 0
        self.is_finished = False

    def push(self, emission: Emission) -> TextDelta:
        """The next delta.  Tokens already seen are skipped; after the end everything is.

        Raises `InternalError` for a gap in the indexes: holding frames until a gap is filled is the caller's part.
        """
        if self.is_finished:
            return TextDelta()
        num_known = self.num_tokens - emission.index_from
        if num_known < 0:
            raise InternalError(
                f"sequence {emission.sequence} of {emission.request_id} goes on at token {emission.index_from}, "
                f"after {self.num_tokens} tokens"
            )
        delta = TextDelta(
            token_ids=emission.token_ids[num_known:],
            logprobs=None if emission.logprobs is None else emission.logprobs[num_known:],
            finish_reason=emission.finish_reason,
            stop_reason=emission.stop_reason,
            num_cached_tokens=emission.num_cached_tokens,
            error=emission.error,
        )
        self._write(delta)
        self.is_finished = delta.finish_reason is not None
        return delta

    def _write(self, delta: TextDelta) -> None:
        """Fill in the text, and cut the delta where a stop string completes."""
        if not self._params.stop and delta.finish_reason is None:
            self.num_tokens += len(delta.token_ids)
            if self._detokenizer is not None:
                delta.text = self._detokenizer.push_all(delta.token_ids)
            return
        hides_last = delta.finish_reason == FINISH_STOP and not self._params.include_stop_str_in_output
        parts: list[str] = []
        for i, token_id in enumerate(delta.token_ids):
            self.num_tokens += 1
            if hides_last and i == len(delta.token_ids) - 1:
                break
            text = "" if self._detokenizer is None else self._detokenizer.push(token_id)
            stop = self._release(text, parts)
            if stop is not None:
                _cut(delta, i + 1, parts, stop)
                return
        if delta.finish_reason is not None:
            tail = "" if self._detokenizer is None else self._detokenizer.finish()
            stop = self._release(tail, parts)
            if stop is not None:
                _cut(delta, len(delta.token_ids), parts, stop)
                return
            parts.append(self._matcher.flush())
        delta.text = "".join(parts)

    def _release(self, text: str, parts: list[str]) -> str | None:
        """Pass text through the stop strings into `parts`; the stop string that completed."""
        is_armed = self._params.min_tokens == 0 or self.num_tokens > self._params.min_tokens
        released, stop = self._matcher.push(text, is_armed=is_armed)
        parts.append(released)
        return stop


def _cut(delta: TextDelta, num_tokens: int, parts: list[str], stop: str) -> None:
    """End the delta at the token that completed `stop`."""
    delta.text = "".join(parts)
    delta.token_ids = delta.token_ids[:num_tokens]
    delta.logprobs = None if delta.logprobs is None else delta.logprobs[:num_tokens]
    delta.finish_reason, delta.stop_reason = FINISH_STOP, stop
