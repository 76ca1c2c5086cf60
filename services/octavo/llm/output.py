"""What a request gives back: `RequestOutput` with one `CompletionOutput` per sequence."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.errors import ErrorDetail, from_detail


@dataclass(frozen=True)
class Logprob:
    """Log-probability of one token, its rank (1 is the most likely) and its text."""

    logprob: float
    rank: int
    decoded_token: str


@dataclass
class CompletionOutput:
    """One sequence so far: text and token ids are cumulative.

    `logprobs` has one dictionary per token id of the output (None unless asked for): the most likely ids, best first,
    and the chosen one.  `cumulative_logprob` sums the chosen ones.  `finish_reason` is None while the sequence runs,
    then `stop`, `length`, `abort` or `error`; `stop_reason` is the stop string or stop token id that ended it.
    """

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    cumulative_logprob: float | None = None

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    """A request so far.  `error` says why, when a sequence's finish reason is `error`.

    `prompt` is None for a request made from token ids.  `num_cached_tokens` counts prompt tokens served from the
    prefix cache.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    num_cached_tokens: int = 0
    finished: bool = False
    error: ErrorDetail | None = field(default=None)

    def raise_for_error(self) -> None:
        """Raise the typed error, if the request ended with one."""
        if self.error is not None:
            raise from_detail(self.error)
