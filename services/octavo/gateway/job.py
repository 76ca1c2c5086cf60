"""What the edges (HTTP, gRPC) hand to the core service, and what they get back."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.request import TokenLogprobs


class Job(msgspec.Struct, kw_only=True):
    """One prompt to generate for.

    Exactly one of `text`, `token_ids` and `messages` is set.  `explicit` are the sampling settings that the client
    gave, under the names of `SamplingParams`; the others come from the model's defaults.  `label` is the client's own
    request id.  `field` names the prompt in error messages.
    """

    model: str = ""
    text: str | None = None
    token_ids: list[int] | None = None
    messages: list[dict[str, Any]] | None = None
    template_options: dict[str, Any] = {}
    add_special_tokens: bool = True
    explicit: dict[str, Any] = {}
    label: str = ""
    cache_salt: str = ""
    priority: int = 0
    timeout_s: float = 0.0
    field: str = "prompt"


class OutputDelta(msgspec.Struct):
    """What one sequence gained since its last delta.

    `index_from` is the output index of the first of `token_ids`; `text` may lag behind them while a character or a
    possible stop string is incomplete.  `finish_reason` (`stop` or `length`) is set on the sequence's last delta.
    """

    sequence: int
    index_from: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class ModelCard(msgspec.Struct):
    """One served name of the model."""

    id: str
    root: str
    max_model_len: int
    created_unix_s: int
