"""The nouns that travel: `Request` (what is asked) and `Emission` (what came of it).

Both are positional msgpack structs: fields are only appended, each with a default.  An engine's live state of one
branch is `octavo.engine.sequence.Sequence`; it never leaves the engine.
"""

from __future__ import annotations

import msgspec

from octavo.errors import ErrorDetail
from octavo.kv.record import WorkerRecord
from octavo.sampling_params import SamplingParams

FINISH_STOP = "stop"
FINISH_LENGTH = "length"
FINISH_ABORT = "abort"
FINISH_ERROR = "error"


class SequenceInput(msgspec.Struct, array_like=True):
    """One branch of a request as submitted: its index and the ids it has already put out (empty unless resumed)."""

    index: int
    output_token_ids: list[int] = []


SIDE_PRODUCE = "produce"
SIDE_CONSUME = "consume"


class TransferPeer(msgspec.Struct, array_like=True):
    """Another worker of a transfer.  With `is_request` it was given the same request and brings token 0; else it is
    asked by block hash for what it holds."""

    record: WorkerRecord
    is_request: bool = True


class TransferLeg(msgspec.Struct, array_like=True):
    """Which part of a remote placement a submit is.

    The gateway mints `transfer_id` and gives both legs the same.  `side` is `produce` (prefill) or `consume` (decode);
    `peers` are the other workers, best source first.
    """

    transfer_id: str
    side: str
    peers: list[TransferPeer] = []


class Request(msgspec.Struct, array_like=True):
    """One generation request as an engine gets it.

    `request_id` is minted by the gateway and unique; a client's own id is only a label kept at the gateway.  `attempt`
    numbers the tries of a request and is the fence: an engine refuses an attempt below the highest it has seen.
    `params.seed` is always set.  `namespace` is the hash of tenant and cache salt that keeps prefix caches apart.
    `priority` orders requests under the `priority` policy, lower first.  `deadline_unix_s` 0 means none.
    `transfer` None: this worker does it all.
    """

    request_id: str
    attempt: int
    prompt_token_ids: list[int]
    params: SamplingParams
    sequences: list[SequenceInput]
    namespace: bytes = b""
    priority: int = 0
    deadline_unix_s: float = 0.0
    transfer: TransferLeg | None = None

    @property
    def key(self) -> tuple[str, int]:
        return (self.request_id, self.attempt)


class TokenLogprobs(msgspec.Struct, array_like=True):
    """Log-probabilities for one put-out token, from the raw logits (before penalties and filters).

    `logprob` and `rank` (1 is the most likely) are the chosen token's; `top_ids` and `top_logprobs` the most likely
    ones, best first, ties by lowest id.
    """

    logprob: float
    rank: int
    top_ids: list[int] = []
    top_logprobs: list[float] = []


class Emission(msgspec.Struct, array_like=True):
    """What one step adds to one sequence.

    `index_from` is the output index of the first of `token_ids`.  `finish_reason` is set on the last emission
    (`stop`, `length`, `abort` or `error`); `stop_reason` is the stop token id when one ended it.  `num_cached_tokens`
    (prompt tokens served from the prefix cache) is set on a sequence's first emission, -1 elsewhere.
    """

    request_id: str
    attempt: int
    sequence: int
    index_from: int
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    num_cached_tokens: int = -1
    error: ErrorDetail | None = None
