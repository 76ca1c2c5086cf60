"""Logprobs of output tokens in the two shapes that OpenAI's endpoints have."""

from __future__ import annotations

from octavo.gateway.http.answer import ChatLogprob, ChatLogprobs, CompletionLogprobs, TopLogprob
from octavo.gateway.job import OutputDelta
from octavo.text.tokenizer import Tokenizer


def chat_logprobs(tokenizer: Tokenizer, delta: OutputDelta) -> ChatLogprobs | None:
    if delta.logprobs is None:
        return None
    content = []
    for token_id, entry in zip(delta.token_ids, delta.logprobs, strict=True):
        top = [
            TopLogprob(tokenizer.piece(i), value, list(tokenizer.token_bytes(i)))
            for i, value in zip(entry.top_ids, entry.top_logprobs, strict=True)
        ]
        piece, raw = tokenizer.piece(token_id), list(tokenizer.token_bytes(token_id))
        content.append(ChatLogprob(piece, entry.logprob, raw, top))
    return ChatLogprobs(content)


def completion_logprobs(tokenizer: Tokenizer, delta: OutputDelta, offset: int) -> CompletionLogprobs | None:
    """`offset` is the length in characters of the sequence's tokens before this delta."""
    if delta.logprobs is None:
        return None
    out = CompletionLogprobs([], [], [], [])
    for token_id, entry in zip(delta.token_ids, delta.logprobs, strict=True):
        piece = tokenizer.piece(token_id)
        out.tokens.append(piece)
        out.token_logprobs.append(entry.logprob)
        # Two ids may have the same text: the more likely one, which comes first, keeps the entry.
        top: dict[str, float] = {}
        for i, value in zip(entry.top_ids, entry.top_logprobs, strict=True):
            top.setdefault(tokenizer.piece(i), value)
        top.setdefault(piece, entry.logprob)
        out.top_logprobs.append(top)
        out.text_offset.append(offset)
        offset += len(piece)
    return out


def join(first: CompletionLogprobs | None, more: CompletionLogprobs | None) -> CompletionLogprobs | None:
    if first is None or more is None:
        return first or more
    first.tokens += more.tokens
    first.token_logprobs += more.token_logprobs
    first.top_logprobs += more.top_logprobs
    first.text_offset += more.text_offset
    return first
