"""`EdgeModel`: what the gateway knows of the model it serves: tokenizer, chat template, limits and defaults."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from octavo.errors import InvalidInput, ModelNotFound, TooLong
from octavo.hub.files import ModelFiles
from octavo.hub.generation import GenerationDefaults
from octavo.kv.record import WorkerRecord
from octavo.request_check import check_prompt
from octavo.sampling_params import SamplingParams
from octavo.text.template import ChatTemplate
from octavo.text.tokenizer import Tokenizer

INLINE_CHARS = 2000
"""Texts up to this length are encoded on the event loop (about a millisecond); longer ones in a thread."""


class EdgeModel:
    """Text in, token ids out, and the checks that need no worker.

    `records` are the ready workers' records: where some are known they bound prompt length and token ids; a prompt is
    refused as too long only when no worker can hold it.
    """

    def __init__(
        self,
        files: ModelFiles,
        tokenizer: Tokenizer,
        defaults: GenerationDefaults,
        served_names: Sequence[str],
        *,
        max_model_len: int = 0,
        chat_template: str = "",
    ) -> None:
        self.files = files
        self.tokenizer = tokenizer
        self.defaults = defaults
        self.served_names = tuple(served_names)
        self._own_limit = max_model_len or int(files.config.get("max_position_embeddings") or 0)
        self._template = ChatTemplate(chat_template or tokenizer.chat_template, tokenizer)
        self._longest_token = 0

    def check_name(self, name: str) -> str:
        """The served name that a request means; empty means the first one.  Raises `ModelNotFound`."""
        if not name:
            return self.served_names[0]
        if name not in self.served_names:
            allowed = ", ".join(self.served_names)
            raise ModelNotFound(f"model: got {name!r}; this server serves {allowed}", param="model")
        return name

    def max_model_len(self, records: Sequence[WorkerRecord]) -> int:
        known = max((record.max_sequence_tokens for record in records), default=0)
        return min(known, self._own_limit) if known and self._own_limit else known or self._own_limit

    def vocab_size(self, records: Sequence[WorkerRecord]) -> int:
        known = max((record.vocab_size for record in records), default=0)
        return known or int(self.files.config.get("vocab_size") or 0) or self.tokenizer.vocab_size

    def check(
        self, token_ids: Sequence[int], params: SamplingParams, records: Sequence[WorkerRecord], field: str
    ) -> None:
        """Raise `InvalidInput` or `TooLong` for a request that can never run."""
        check_prompt(
            token_ids,
            params,
            vocab_size=self.vocab_size(records),
            max_model_len=self.max_model_len(records),
            field=field,
        )

    async def encode(
        self, text: str, *, add_special_tokens: bool, records: Sequence[WorkerRecord] = (), field: str = "prompt"
    ) -> list[int]:
        """Token ids of `text`.  A text that cannot fit whatever its tokens is refused unread (`TooLong`)."""
        if len(text) <= INLINE_CHARS:
            return self.tokenizer.encode(text, add_special_tokens)
        limit = self.max_model_len(records)
        if limit and len(text) > limit * await asyncio.to_thread(self._longest):
            raise TooLong(
                f"{field}: got {len(text)} characters; the context holds {limit} tokens, prompt and output together",
                param=field,
            )
        return await asyncio.to_thread(self.tokenizer.encode, text, add_special_tokens)

    def render(self, messages: list[dict[str, Any]], **options: Any) -> str:
        """The prompt text of a conversation; raises `InvalidInput` that names the bad message or option."""
        return self._template.render(messages, **options)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool, records: Sequence[WorkerRecord]) -> str:
        limit = self.vocab_size(records)
        for index, token_id in enumerate(token_ids):
            if not 0 <= token_id < limit:
                raise InvalidInput(
                    f"tokens[{index}]: got {token_id}; must be a token id from 0 to {limit - 1}", param="tokens"
                )
        return self.tokenizer.decode(list(token_ids), skip_special_tokens)

    def _longest(self) -> int:
        if not self._longest_token:
            pieces = (self.tokenizer.piece(i) for i in range(self.tokenizer.vocab_size))
            self._longest_token = max(map(len, pieces), default=1) or 1
        return self._longest_token
