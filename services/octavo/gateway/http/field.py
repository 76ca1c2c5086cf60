"""Request fields that completions and chat share, and how they become sampling settings."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from octavo.errors import InvalidInput, Problem, show

PLAIN = (
    "n",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "include_stop_str_in_output",
    "min_tokens",
    "ignore_eos",
    "skip_special_tokens",
)
"""Fields whose name and meaning are those of `SamplingParams`."""

NOT_BUILT = {
    "guided_json": "structured output",
    "guided_regex": "structured output",
    "guided_choice": "structured output",
    "guided_grammar": "structured output",
    "structured_outputs": "structured output",
    "use_beam_search": "beam search",
    "prompt_logprobs": "prompt logprobs",
    "bad_words": "banned words",
    "allowed_token_ids": "a set of allowed tokens",
    "truncate_prompt_tokens": "truncation of the prompt",
    "logits_processors": "custom logits processors",
    "kv_transfer_params": "transfers chosen by the client",
}
"""Fields that would change the answer and that this version cannot honour: refused rather than ignored."""


class StreamOptions(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerateFields(BaseModel):
    """Common fields.  None means "not given"; unknown fields are kept only to refuse those in `NOT_BUILT`."""

    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=())

    model: str | None = None
    n: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    stop: Any = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None
    ignore_eos: bool | None = None
    logit_bias: dict[str, float] | None = None
    skip_special_tokens: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: int | None = None
    cache_salt: str | None = None
    return_token_ids: bool | None = None
    user: str | None = None

    def sampling(self) -> dict[str, Any]:
        """The given settings under the names of `SamplingParams`.  Raises `InvalidInput`."""
        self._refuse_not_built()
        out = {name: value for name in PLAIN if (value := getattr(self, name)) is not None}
        if self.stop is not None:
            out["stop"] = _stop_strings(self.stop)
        if self.stop_token_ids is not None:
            out["stop_token_ids"] = tuple(self.stop_token_ids)
        if self.logit_bias is not None:
            out["logit_bias"] = _logit_bias(self.logit_bias)
        if self.max_tokens is not None:
            out["max_tokens"] = self.max_tokens
        if self.stream_options is not None and not self.stream:
            raise InvalidInput("stream_options: only allowed when stream is true", param="stream_options")
        if self.priority is not None and not -(2**31) <= self.priority < 2**31:
            allowed = "must fit in 32 bits"
            raise InvalidInput.of([Problem("priority", show(self.priority), allowed)])
        return out

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    def _refuse_not_built(self) -> None:
        for field, what in NOT_BUILT.items():
            value = (self.model_extra or {}).get(field)
            if value is not None and value is not False and value != []:
                raise InvalidInput(f"{field}: got {show(value)}; {what} is not supported", param=field)


def _stop_strings(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise InvalidInput.of([Problem("stop", show(value), "must be a string or a list of strings")])


def _logit_bias(value: dict[str, float]) -> dict[int, float]:
    for key in value:
        if not key.removeprefix("-").isdecimal() or len(key) > 10:
            raise InvalidInput.of([Problem("logit_bias", show(key), "each key must be a token id")])
    return {int(key): bias for key, bias in value.items()}
