"""What the public gRPC API speaks, as plain structs; `octavo.rpc.convert_public` maps them to protobuf."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.request import TokenLogprobs


class GenerateCall(msgspec.Struct, kw_only=True):
    """Generate for a text or for token ids.  `params` holds the settings given, by name of `SamplingParams`."""

    prompt: str | list[int]
    model: str = ""
    params: dict[str, Any] = {}
    request_id: str = ""
    cache_salt: str = ""
    priority: int = 0
    timeout_s: float = 0.0
    echo_prompt_ids: bool = False


class ChatCall(msgspec.Struct, kw_only=True):
    """Answer a conversation: messages with `role` and `content`."""

    messages: list[dict[str, Any]]
    model: str = ""
    params: dict[str, Any] = {}
    request_id: str = ""
    cache_salt: str = ""
    priority: int = 0
    timeout_s: float = 0.0
    template_kwargs: dict[str, Any] = {}
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False


class Usage(msgspec.Struct, frozen=True):
    """Token counts of a request; `cached_tokens` are prompt tokens that came from the prefix cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class Chunk(msgspec.Struct, kw_only=True):
    """What one sequence gained.  `finish_reason` is set on its last chunk, `usage` on the stream's last one."""

    request_id: str
    sequence: int = 0
    index_from: int = 0
    text: str = ""
    token_ids: list[int] = []
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: str | None = None
    usage: Usage | None = None
    prompt_token_ids: list[int] = []
    system_fingerprint: str = ""
    kv_path: str = ""


class ModelInfo(msgspec.Struct, frozen=True):
    """A served name."""

    id: str
    max_model_len: int
    root: str = ""


class Health(msgspec.Struct, frozen=True):
    """`is_healthy`: the gateway works; `is_ready`: a worker can take requests."""

    is_healthy: bool
    is_ready: bool
    detail: str = ""
