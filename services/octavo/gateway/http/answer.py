"""Answers in OpenAI's shape, as msgspec structs (encoded on the hot path, one per token)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

ENCODER = msgspec.json.Encoder()
DONE = b"data: [DONE]\n\n"
_LINE_ENDS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))
"""What Unicode counts as a line end and JSON allows unescaped, in UTF-8 and as an escape."""


class PromptDetails(msgspec.Struct):
    cached_tokens: int


class Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class Octavo(msgspec.Struct):
    """What Octavo adds beside the usage."""

    kv_path: str


class CompletionLogprobs(msgspec.Struct):
    """Logprobs in the format of `/v1/completions`: parallel lists, one entry per token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class Completion(msgspec.Struct):
    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    object: str = "text_completion"
    system_fingerprint: str | None = None
    usage: Usage | UnsetType | None = UNSET
    octavo: Octavo | UnsetType = UNSET


class TopLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    content: list[ChatLogprob]
    refusal: None = None


class Message(msgspec.Struct):
    role: str
    content: str
    refusal: None = None


class ChatChoice(msgspec.Struct):
    index: int
    message: Message
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | UnsetType = UNSET


class Delta(msgspec.Struct):
    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChunkChoice(msgspec.Struct):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | UnsetType | None = UNSET
    token_ids: list[int] | UnsetType = UNSET


class Chat(msgspec.Struct):
    """A chat completion (`ChatChoice`s) or one chunk of its stream (`ChunkChoice`s)."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice] | list[ChunkChoice]
    object: str
    system_fingerprint: str | None = None
    prompt_token_ids: list[int] | UnsetType = UNSET
    usage: Usage | UnsetType | None = UNSET
    octavo: Octavo | UnsetType = UNSET


def sse(body: Any) -> bytes:
    """One server-sent event, in one line for clients too that split at every line end that Unicode knows (httpx)."""
    data = ENCODER.encode(body)
    if not data.isascii():
        for raw, escaped in _LINE_ENDS:
            data = data.replace(raw, escaped)
    return b"data: " + data + b"\n\n"
