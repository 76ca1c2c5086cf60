"""Checks of a config's sizes, shared by the models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.errors import InvalidInput, Problem, show


def require(config: Mapping[str, Any], *names: str) -> None:
    """Raises `InvalidInput` that lists those of `names` that are no positive integers in a config."""
    problems = [
        Problem(name, show(config.get(name)), "the model's config needs a whole number above 0")
        for name in names
        if not isinstance(config.get(name), int) or isinstance(config[name], bool) or config[name] < 1
    ]
    if problems:
        raise InvalidInput.of(problems)


def require_numbers(config: Mapping[str, Any], *names: str) -> None:
    """Raises `InvalidInput` that lists those of `names` that are no numbers above 0 in a config."""
    problems = [
        Problem(name, show(config[name]), "the model's config needs a number above 0")
        for name in names
        if isinstance(config[name], bool) or not isinstance(config[name], int | float) or not config[name] > 0
    ]
    if problems:
        raise InvalidInput.of(problems)


def check_sizes(config: Mapping[str, Any], num_ranks: int) -> list[Problem]:
    """Everything that keeps `num_ranks` ranks from sharing the model of a completed config."""
    out = []
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    if heads % kv_heads:
        out.append(Problem("num_key_value_heads", show(kv_heads), f"must divide num_attention_heads ({heads})"))
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        if config[name] % num_ranks:
            out.append(Problem("tensor_parallel_size", show(num_ranks), f"must divide {name} ({config[name]})"))
    return out


def resolve_length(max_model_len: int, limit: int) -> int:
    """The longest sequence to serve: `max_model_len`, or the model's `limit` when it is 0."""
    if max_model_len > limit:
        allowed = f"the model takes at most {limit} tokens; rope_scaling may extend it where the model has RoPE"
        raise InvalidInput.of([Problem("max_model_len", show(max_model_len), allowed)])
    return max_model_len or limit
