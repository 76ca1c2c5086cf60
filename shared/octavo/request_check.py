"""Checks of a tokenized request, the same at every edge: gateway, SDK server and `LLM`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from octavo.errors import InvalidInput, Problem, TooLong, show
from octavo.sampling_params import SamplingParams

_FIELDS = msgspec.structs.fields(SamplingParams)


def check_prompt(
    prompt_token_ids: Sequence[int],
    params: SamplingParams,
    *,
    vocab_size: int,
    max_model_len: int,
    field: str = "prompt",
) -> None:
    """Raise `InvalidInput` (all problems in one) or `TooLong` when the request can never run; `field` names the prompt.

    A prompt needs at least one token, token ids inside the vocabulary, and room for one output token in the context;
    an explicit `max_tokens` must fit beside it (None means: up to the context).
    """
    problems = params.problems(vocab_size)
    if not len(prompt_token_ids):
        problems.append(Problem(field, "no tokens", "a prompt must have at least one token"))
    # Millions of ids would hold up everything else that this process serves, and are too many whatever they are.
    looked_at = prompt_token_ids[:max_model_len]
    if not _are_ids(looked_at, vocab_size):
        for index, token_id in enumerate(looked_at):
            if type(token_id) is not int or not 0 <= token_id < vocab_size:
                allowed = f"must be a token id from 0 to {vocab_size - 1}"
                problems.append(Problem(f"{field}[{index}]", show(token_id), allowed))
                break
    if problems:
        raise InvalidInput.of(problems)
    num_prompt = len(prompt_token_ids)
    if num_prompt >= max_model_len:
        raise TooLong(
            f"{field}: got {num_prompt} tokens; the context holds {max_model_len} tokens, prompt and output together",
            param=field,
        )
    if params.max_tokens is not None and num_prompt + params.max_tokens > max_model_len:
        raise TooLong(
            f"max_tokens: got {params.max_tokens} beside a prompt of {num_prompt} tokens; "
            f"at most {max_model_len - num_prompt} fit in the context of {max_model_len} tokens",
            param="max_tokens",
        )


def _are_ids(values: Sequence[int], vocab_size: int) -> bool:
    """Whether all are whole numbers from 0 to `vocab_size` - 1: found without a loop in Python."""
    return set(map(type, values)) <= {int} and (not values or 0 <= min(values) <= max(values) < vocab_size)


def check_types(params: SamplingParams) -> SamplingParams:
    """`params` with every field of its declared type, where a caller's code wrote something close to it.

    A stop string may stand for a list of one, lists for tuples, integers for floats.  Raises `InvalidInput` that lists
    the fields of any other type.
    """
    if not isinstance(params, SamplingParams):
        raise InvalidInput.of([Problem("sampling_params", show(params), "must be SamplingParams")])
    values: dict[str, object] = {}
    problems: list[Problem] = []
    for item in _FIELDS:
        value = getattr(params, item.name)
        if item.name == "stop":
            value = () if value is None else (value,) if isinstance(value, str) else value
        try:
            values[item.name] = msgspec.convert(value, item.type)
        except msgspec.ValidationError as error:
            problems.append(Problem(item.name, show(value), str(error)))
    if problems:
        raise InvalidInput.of(problems)
    return SamplingParams(**values)  # type: ignore[arg-type]  # each value was converted to its field's type
