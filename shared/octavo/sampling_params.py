"""`SamplingParams`: how the tokens of one request are chosen, the same on every path.

The names and meanings are those that vLLM and OpenAI users know.  The struct is positional on the wire: fields are only
ever appended, each with a default.
"""

from __future__ import annotations

import math

import msgspec

from octavo.errors import InvalidInput, Problem, show

GREEDY_BELOW = 1e-5
"""Temperatures below this select the highest logit (lowest id on a tie) and use no noise."""

MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 8192
MAX_STOP_TOKEN_IDS = 4096
MAX_LOGPROBS = 20
MAX_N = 128
MAX_SEED = 2**64
MIN_REPETITION, MAX_REPETITION = 0.001, 1000
"""Bounds of the repetition penalty: it divides and multiplies logits, which stay finite within them."""
MAX_COUNT = 2**31 - 1
"""Largest count (top_k, min_tokens, max_tokens) that the wires carry."""


class SamplingParams(msgspec.Struct, frozen=True, array_like=True, kw_only=True, omit_defaults=False):
    """Sampling settings of one request.

    `max_tokens` None means "as many as the context allows".  `seed` None means that the caller draws one (64 bits)
    before the request reaches an engine.  `top_k` 0 or -1, `top_p` 1 and `min_p` 0 switch a filter off.
    `logprobs` k asks for the chosen token's logprob and the k most likely ones (0: the chosen one only).
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    min_tokens: int = 0
    max_tokens: int | None = 16
    ignore_eos: bool = False
    logprobs: int | None = None
    logit_bias: dict[int, float] = msgspec.field(default_factory=dict)
    skip_special_tokens: bool = True
    detokenize: bool = True

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    def replace(self, **changes: object) -> SamplingParams:
        """A copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def problems(self, vocab_size: int | None = None) -> list[Problem]:
        """Everything wrong with these settings; `vocab_size` (when known) bounds the token ids."""
        out: list[Problem] = []

        def check(ok: bool, field: str, value: object, allowed: str) -> None:
            if not ok:
                out.append(Problem(field, show(value), allowed))

        check(1 <= self.n <= MAX_N, "n", self.n, f"must be from 1 to {MAX_N}")
        check(
            _is_real(self.temperature) and self.temperature >= 0, "temperature", self.temperature, "must be at least 0"
        )
        check(-1 <= self.top_k <= MAX_COUNT, "top_k", self.top_k, f"must be -1 or 0 (off), or from 1 to {MAX_COUNT}")
        check(_is_real(self.top_p) and 0 < self.top_p <= 1, "top_p", self.top_p, "must be above 0 and at most 1")
        check(_is_real(self.min_p) and 0 <= self.min_p <= 1, "min_p", self.min_p, "must be from 0 to 1")
        check(
            MIN_REPETITION <= self.repetition_penalty <= MAX_REPETITION,
            "repetition_penalty",
            self.repetition_penalty,
            f"must be from {MIN_REPETITION} to {MAX_REPETITION}",
        )
        for name in ("frequency_penalty", "presence_penalty"):
            value = getattr(self, name)
            check(_is_real(value) and -2 <= value <= 2, name, value, "must be from -2 to 2")
        check(self.seed is None or 0 <= self.seed < MAX_SEED, "seed", self.seed, "must be from 0 to 2**64 - 1")
        check(len(self.stop) <= MAX_STOP_STRINGS, "stop", len(self.stop), f"at most {MAX_STOP_STRINGS} stop strings")
        longest = max(map(len, self.stop), default=0)
        allowed = f"a stop string has at most {MAX_STOP_CHARS} characters"
        check(longest <= MAX_STOP_CHARS, "stop", f"{longest} characters", allowed)
        check(all(self.stop), "stop", self.stop, "a stop string must not be empty")
        check(
            self.max_tokens is None or 1 <= self.max_tokens <= MAX_COUNT,
            "max_tokens",
            self.max_tokens,
            f"must be at least 1 and at most {MAX_COUNT}",
        )
        check(
            0 <= self.min_tokens <= MAX_COUNT,
            "min_tokens",
            self.min_tokens,
            f"must be at least 0 and at most {MAX_COUNT}",
        )
        if self.max_tokens is not None and self.max_tokens >= 1:
            check(
                self.min_tokens <= self.max_tokens,
                "min_tokens",
                self.min_tokens,
                f"must not exceed max_tokens ({self.max_tokens})",
            )
        check(
            self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS,
            "logprobs",
            self.logprobs,
            f"must be from 0 to {MAX_LOGPROBS}",
        )
        out += self._token_problems(vocab_size)
        return out

    def _token_problems(self, vocab_size: int | None) -> list[Problem]:
        """The first wrong entry of each setting by token id: there may be a million, and a client gets the message."""
        out = []
        allowed = "must be a token id" if vocab_size is None else f"must be a token id from 0 to {vocab_size - 1}"
        for token, bias in self.logit_bias.items():
            if not _in_vocab(token, vocab_size):
                out.append(Problem("logit_bias", show(token), allowed))
            if not (_is_real(bias) and -100 <= bias <= 100):
                out.append(Problem("logit_bias", show(bias), "each bias must be from -100 to 100"))
            if out:
                break
        num_stops = len(self.stop_token_ids)
        if num_stops > MAX_STOP_TOKEN_IDS:
            out.append(Problem("stop_token_ids", f"{num_stops} ids", f"at most {MAX_STOP_TOKEN_IDS} are allowed"))
        bad = next((t for t in self.stop_token_ids[:MAX_STOP_TOKEN_IDS] if not _in_vocab(t, vocab_size)), None)
        if bad is not None:
            out.append(Problem("stop_token_ids", show(bad), allowed))
        return out

    def check(self, vocab_size: int | None = None) -> None:
        """Raise `InvalidInput` that lists all problems, if there are any."""
        found = self.problems(vocab_size)
        if found:
            raise InvalidInput.of(found)


def _in_vocab(token: int, vocab_size: int | None) -> bool:
    return 0 <= token <= MAX_COUNT and (vocab_size is None or token < vocab_size)


def _is_real(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False
