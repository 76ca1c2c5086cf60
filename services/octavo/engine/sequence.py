"""The live `Sequence`: one branch of a request inside the engine, and `LiveRequest`, what its branches share."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from octavo.request import Request, SequenceInput

NO_SLOT = -1


class Status(Enum):
    """Where a sequence is.  A paused sequence keeps its status: pausing belongs to the request."""

    WAITING = "queued"
    WAITING_KV = "waiting_kv"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


@dataclass(eq=False, slots=True)
class LiveRequest:
    """A request between `add` and its end.

    `seed` starts the hash chains of its tokens; `arrival` numbers requests in the order they came, `arrival_step` is
    the number of the step planned next at that time.
    """

    request: Request
    seed: bytes
    arrival: int
    arrival_step: int
    sequences: list[Sequence] = field(default_factory=list)
    is_paused: bool = False
    has_started: bool = False


@dataclass(eq=False, slots=True)
class Sequence:
    """One branch.

    `token_ids` is the prompt followed by the accepted outputs.  `num_pending` counts tokens that planned steps will
    sample and that are not known yet.  `num_computed` counts tokens whose KV planned steps have written (or will have,
    once they complete), `num_wanted` those that have to be computed before the next one can be sampled.  A sequence
    that lost its blocks starts again from `num_computed` 0 and never samples a known token again.
    `max_total_tokens` is the length at which it ends for certain; `num_published` counts its leading blocks that the
    prefix cache has seen; `last_step` is the last step that reads or writes its blocks; `admission` counts admissions,
    so that a step's row can tell whether it still belongs to the current one.
    """

    live: LiveRequest
    index: int
    token_ids: list[int]
    num_prompt_tokens: int
    max_total_tokens: int
    status: Status = Status.WAITING
    num_computed: int = 0
    num_pending: int = 0
    slot: int = NO_SLOT
    block_tables: list[list[int]] = field(default_factory=list)
    chain: list[bytes] = field(default_factory=list)
    num_published: int = 0
    num_cached_tokens: int = -1
    last_step: int = 0
    admission: int = 0
    num_preemptions: int = 0
    has_emitted: bool = False
    is_resumed: bool = False

    @classmethod
    def of(cls, live: LiveRequest, branch: SequenceInput, num_groups: int, max_total_tokens: int) -> Sequence:
        """The live form of a submitted branch, with the outputs it already has."""
        prompt = live.request.prompt_token_ids
        return cls(
            live=live,
            index=branch.index,
            token_ids=[*prompt, *branch.output_token_ids],
            num_prompt_tokens=len(prompt),
            max_total_tokens=max_total_tokens,
            block_tables=[[] for _ in range(num_groups)],
            is_resumed=bool(branch.output_token_ids),
        )

    @property
    def num_wanted(self) -> int:
        return len(self.token_ids) + self.num_pending

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def is_paused(self) -> bool:
        return self.live.is_paused

    @property
    def is_finished(self) -> bool:
        return self.status is Status.FINISHED

    @property
    def priority(self) -> int:
        return self.live.request.priority
