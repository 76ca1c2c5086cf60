"""`SchedulerSpec`: the limits within which a scheduler plans, resolved, and what they say of a request."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.engine import CacheConfig, SchedulerConfig
from octavo.engine.waiting import POLICIES
from octavo.errors import InvalidInput, Problem, TooLong, show
from octavo.kv.layout import BLOCK_SIZES, KVLayout
from octavo.request import Request


@dataclass(frozen=True)
class SchedulerSpec:
    """Sizes and rules of one engine.

    `num_blocks` is the pool that all groups share; `max_model_len` the model's context in tokens;
    `max_num_batched_tokens` the budget of a step; `vocab_size` 0 leaves token ids unchecked.
    """

    num_blocks: int
    block_size: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_num_waiting: int
    policy: str = "fcfs"
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    num_groups: int = 1
    eos_token_ids: frozenset[int] = frozenset()
    vocab_size: int = 0
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
        for name in ("num_groups", "max_model_len", "max_num_batched_tokens", "max_num_seqs"):
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
        request.params.check(self.vocab_size or None)
        num_prompt = len(request.prompt_token_ids)
        if not num_prompt:
            raise InvalidInput("prompt: got no tokens; at least one", param="prompt")
        indexes = [branch.index for branch in request.sequences]
        if not indexes or len(set(indexes)) < len(indexes) or min(indexes) < 0:
            raise InvalidInput(f"sequences: got indexes {indexes}; at least one, each once", param="sequences")
        self._check_ids("prompt", request.prompt_token_ids)
        for branch in request.sequences:
            self._check_ids("sequences.output_token_ids", branch.output_token_ids)
        self._check_length(request)

    def _check_length(self, request: Request) -> None:
        num_prompt, max_tokens = len(request.prompt_token_ids), request.params.max_tokens
        num_outputs = max(len(branch.output_token_ids) for branch in request.sequences)
        limit = self.max_sequence_tokens
        what = "context" if limit == self.max_model_len else "KV pool"
        if num_prompt >= limit or num_prompt + num_outputs > limit:
            raise TooLong(
                f"prompt: got {num_prompt + num_outputs} tokens; the {what} holds {limit}, output included",
                param="prompt",
            )
        if max_tokens is not None and num_prompt + max_tokens > limit:
            raise TooLong(
                f"max_tokens: got {max_tokens} after a prompt of {num_prompt}; the {what} holds {limit} tokens, "
                f"so at most {limit - num_prompt}",
                param="max_tokens",
            )

    def _check_ids(self, field: str, token_ids: list[int]) -> None:
        if token_ids and (min(token_ids) < 0 or (self.vocab_size and max(token_ids) >= self.vocab_size)):
            bad = next(t for t in token_ids if t < 0 or (self.vocab_size and t >= self.vocab_size))
            allowed = f"from 0 to {self.vocab_size - 1}" if self.vocab_size else "not negative"
            raise InvalidInput(f"{field}: got token id {bad}; must be {allowed}", param=field)
