"""Prompts and sampling parameters as callers write them, brought into one form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from octavo.errors import InvalidInput, Problem, show
from octavo.sampling_params import SamplingParams

Prompt = str | list[int] | dict[str, Any]
"""A text, token ids, `{"prompt": text}` or `{"prompt_token_ids": ids}` (with both, the ids count)."""

_ALLOWED = 'must be a text, token ids, {"prompt": text} or {"prompt_token_ids": ids}'
_KEYS = ("prompt", "prompt_token_ids")


@dataclass(frozen=True)
class PromptParts:
    """A prompt's text, its token ids, or both."""

    text: str | None
    token_ids: list[int] | None


def list_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One prompt or a sequence of them, as a list.  A list of integers is one prompt."""
    if isinstance(prompts, str | dict):
        return [prompts]
    if not isinstance(prompts, list | tuple):
        raise InvalidInput.of([Problem("prompts", show(prompts), f"{_ALLOWED}, or a list of those")])
    if prompts and all(isinstance(p, int) for p in prompts):
        return [list(prompts)]
    return list(prompts)


def read_prompt(prompt: Prompt | None, field: str = "prompt") -> PromptParts:
    """The parts of one prompt; raises `InvalidInput` for anything of another form.  Ids are not looked at."""
    if isinstance(prompt, str):
        return PromptParts(prompt, None)
    if isinstance(prompt, list | tuple):
        return PromptParts(None, list(prompt))
    if not isinstance(prompt, dict):
        raise InvalidInput.of([Problem(field, show(prompt), _ALLOWED)])
    text, ids = (prompt.get(key) for key in _KEYS)
    unknown = [key for key in prompt if key not in _KEYS]
    is_wrong = not (text is None or isinstance(text, str)) or not (ids is None or isinstance(ids, list | tuple))
    if unknown or is_wrong or (text is None and ids is None):
        raise InvalidInput.of([Problem(field, show(prompt), _ALLOWED)])
    return PromptParts(text, None if ids is None else list(ids))


def list_params(
    params: SamplingParams | Sequence[SamplingParams] | None, num_prompts: int
) -> list[SamplingParams | None]:
    """Sampling parameters per prompt (None: the defaults), from none, one for all, or one each."""
    if params is None or isinstance(params, SamplingParams):
        return [params] * num_prompts
    if not isinstance(params, list | tuple):
        allowed = "must be SamplingParams, or a list of them, one for each prompt"
        raise InvalidInput.of([Problem("sampling_params", show(params), allowed)])
    if len(params) != num_prompts:
        allowed = f"must be one for all prompts, or one for each of the {num_prompts}"
        raise InvalidInput.of([Problem("sampling_params", str(len(params)), allowed)])
    return list(params)


def list_conversations(messages: Sequence[Any]) -> list[list[dict[str, Any]]]:
    """One conversation (a list of messages) or a list of conversations, as a list of conversations."""
    is_list = isinstance(messages, list | tuple) and bool(messages)
    if is_list and all(isinstance(m, dict) for m in messages):
        return [list(messages)]
    if not is_list or not all(isinstance(conversation, list | tuple) for conversation in messages):
        allowed = "must be a list of messages, or a list of such lists"
        raise InvalidInput.of([Problem("messages", show(messages), allowed)])
    return [list(conversation) for conversation in messages]
