"""`TokenizerParts`: what the loaders of tokenizer formats hand over."""

from __future__ import annotations

from dataclasses import dataclass

import tokenizers


@dataclass(frozen=True)
class TokenizerParts:
    """What a loader found.

    `affixes` are the ids put before and after a text when special tokens are wanted; None leaves that to the
    backend's own post-processor.
    """

    backend: tokenizers.Tokenizer
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    affixes: tuple[list[int], list[int]] | None = None
    chat_template: str | None = None
    special_tokens: dict[str, str] | None = None
    """Names a chat template may use (`bos_token`, `eos_token`, ...) → their text."""
