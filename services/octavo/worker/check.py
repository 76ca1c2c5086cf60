"""What a front refuses by itself, so that a bad request costs the engine nothing.  Pure."""

from __future__ import annotations

from octavo.errors import Busy, DeadlineExceeded, InvalidInput, TooLong
from octavo.kv.record import WorkerRecord
from octavo.request import Request
from octavo.wire.message import EngineStats


def check_request(request: Request, record: WorkerRecord) -> None:
    """Raise `InvalidInput` or `TooLong` when the worker of `record` can never run `request`."""
    vocab_size, limit = record.vocab_size, record.max_sequence_tokens
    request.params.check(vocab_size)
    if request.params.seed is None:
        raise InvalidInput("params.seed: got None; the gateway draws a seed before it submits", param="seed")
    if not request.prompt_token_ids:
        raise InvalidInput("prompt: got no tokens; at least one", param="prompt")
    indexes = [s.index for s in request.sequences]
    if not indexes or len(set(indexes)) != len(indexes):
        raise InvalidInput(f"sequences: got indexes {indexes}; at least one, each once", param="sequences")
    _check_ids("prompt", request.prompt_token_ids, vocab_size)
    for sequence in request.sequences:
        _check_ids("sequences.output_token_ids", sequence.output_token_ids, vocab_size)
    num_prompt = len(request.prompt_token_ids)
    longest = num_prompt + max(len(s.output_token_ids) for s in request.sequences)
    if num_prompt >= limit or longest > limit:
        raise TooLong(
            f"prompt: got {longest} tokens; this worker holds {limit} per sequence, output included", param="prompt"
        )
    max_tokens = request.params.max_tokens
    if max_tokens is not None and num_prompt + max_tokens > limit:
        raise TooLong(
            f"max_tokens: got {max_tokens} after a prompt of {num_prompt} tokens; this worker holds {limit} per "
            f"sequence, so at most {limit - num_prompt}",
            param="max_tokens",
        )


def check_admission(request: Request, stats: EngineStats, max_num_waiting: int, now_unix_s: float) -> None:
    """Raise `Busy` when the queue is full, `DeadlineExceeded` when the deadline has passed."""
    if 0 < request.deadline_unix_s <= now_unix_s:
        raise DeadlineExceeded(f"deadline: passed {now_unix_s - request.deadline_unix_s:.1f} s before the submit")
    if max_num_waiting and stats.num_waiting_requests >= max_num_waiting:
        retry_after_s = max(1.0, stats.num_waiting_requests * stats.step_ms / 1000)
        raise Busy(
            f"{stats.num_waiting_requests} requests wait; this worker queues at most {max_num_waiting}",
            retry_after_s=retry_after_s,
        )


def _check_ids(field: str, token_ids: list[int], vocab_size: int) -> None:
    if token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocab_size):
        bad = next(t for t in token_ids if not 0 <= t < vocab_size)
        raise InvalidInput(f"{field}: got token id {bad}; must be from 0 to {vocab_size - 1}", param=field)
