"""`SchedulerSpec`: the limits within which a scheduler plans, resolved, and what they say of a request."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.engine import CacheConfig, SchedulerConfig
from octavo.engine.waiting import POLICIES
from octavo.errors import InvalidInput, Problem, TooLong, show
from octavo.kv.layout import BLOCK_SIZES, KVLayout
from octavo.request import Request
from octavo.request_check import check_prompt


@dataclass(frozen=True)
class SchedulerSpec:
    """Sizes and rules of one engine.

    `num_blocks` is the pool that all groups share; `max_model_len` the model's context in tokens;
    `max_num_batched_tokens` the budget of a step in tokens.
    """

    num_blocks: int
    block_size: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_num_waiting: int
    vocab_size: int
    policy: str = "fcfs"
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    num_groups: int = 1
    eos_token_ids: frozenset[int] = frozenset()
    model_revision: str = ""

    @classmethod
    def of(
        cls,
        scheduler: SchedulerConfig,
        cache: CacheConfig,
        layout: KVLayout,
        *,
        num_blocks: int,
        max_model_len: int,
        eos_token_ids: frozenset[int],
        vocab_size: int,
        model_revision: str,
    ) -> SchedulerSpec:
        """From configuration whose zeros (`max_num_batched_tokens`) the caller has resolved for its platform."""
        return cls(
            num_blocks=num_blocks,
            block_size=layout.block_size,
            max_model_len=max_model_len,
            max_num_batched_tokens=scheduler.max_num_batched_tokens,
            max_num_seqs=scheduler.max_num_seqs,
            max_num_waiting=scheduler.max_num_waiting,
            policy=scheduler.scheduling_policy,
            enable_chunked_prefill=scheduler.enable_chunked_prefill,
            enable_prefix_caching=cache.enable_prefix_caching,
            num_groups=len(layout.groups),
            eos_token_ids=eos_token_ids,
            vocab_size=vocab_size,
            model_revision=model_revision,
        )

    @property
    def max_sequence_tokens(self) -> int:
        """The longest sequence that the context and the whole pool can hold."""
        return min(self.max_model_len, self.num_blocks // self.num_groups * self.block_size)

    def problems(self) -> list[Problem]:
        """Everything wrong with these limits."""
        out = []
        for name in ("num_groups", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "vocab_size"):
            if getattr(self, name) < 1:
                out.append(Problem(name, show(getattr(self, name)), "must be at least 1"))
        if self.max_num_waiting < 0:
            out.append(Problem("max_num_waiting", show(self.max_num_waiting), "must be at least 0"))
        if self.num_blocks < max(self.num_groups, 1):
            out.append(Problem("num_blocks", show(self.num_blocks), f"at least one per group ({self.num_groups})"))
        if self.block_size not in BLOCK_SIZES:
            out.append(Problem("block_size", show(self.block_size), f"must be one of {BLOCK_SIZES}"))
        if self.policy not in POLICIES:
            out.append(Problem("scheduling_policy", show(self.policy), f"must be one of {tuple(POLICIES)}"))
        return out

    def check(self) -> None:
        """Raise `InvalidInput` that lists all problems, if there are any."""
        found = self.problems()
        if found:
            raise InvalidInput.of(found)

    def limit_of(self, request: Request) -> int:
        """The length in tokens at which a sequence of `request` ends for certain."""
        max_tokens = request.params.max_tokens
        if max_tokens is None:
            return self.max_sequence_tokens
        return min(len(request.prompt_token_ids) + max_tokens, self.max_sequence_tokens)

    def check_request(self, request: Request) -> None:
        """Raise `InvalidInput` or `TooLong` when `request` can never run here."""
        prompt, params = request.prompt_token_ids, request.params
        check_prompt(prompt, params, vocab_size=self.vocab_size, max_model_len=self.max_model_len)
        indexes = [branch.index for branch in request.sequences]
        if not indexes or len(set(indexes)) < len(indexes) or min(indexes) < 0:
            raise InvalidInput(f"sequences: got indexes {indexes}; at least one, each once", param="sequences")
        for branch in request.sequences:
            ids = branch.output_token_ids
            if ids and not 0 <= min(ids) <= max(ids) < self.vocab_size:
                raise InvalidInput(
                    f"sequences[{branch.index}].output_token_ids: got ids from {min(ids)} to {max(ids)}; "
                    f"must be token ids from 0 to {self.vocab_size - 1}",
                    param="sequences",
                )
        num_outputs = max(len(branch.output_token_ids) for branch in request.sequences)
        num_wanted = max(num_outputs, 1 if params.max_tokens is None else params.max_tokens)
        limit = self.max_sequence_tokens
        if len(prompt) + num_wanted > limit:
            raise TooLong(
                f"prompt and output: got {len(prompt)} + {num_wanted} tokens; at most {limit} fit: the context holds "
                f"{self.max_model_len}, the KV pool {self.num_blocks} blocks of {self.block_size} "
                f"for {self.num_groups} group(s)",
                param="prompt",
            )
