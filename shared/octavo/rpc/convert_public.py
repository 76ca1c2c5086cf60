"""Public API nouns ↔ protobuf: the edge's half of `octavo.rpc.convert`."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from octavo.errors import InvalidInput, show
from octavo.pb import common_pb2, public_pb2
from octavo.request import TokenLogprobs
from octavo.rpc import public
from octavo.rpc.convert import explicit_params
from octavo.sampling_params import SamplingParams

NO_FIT = (TypeError, ValueError, OverflowError, AttributeError)
"""What protobuf raises for a value that a field does not take."""
_PARAM_FIELDS = {f.name for f in msgspec.structs.fields(SamplingParams)}


def explicit_to_pb(explicit: dict[str, Any]) -> common_pb2.SamplingParams:
    """Only the settings in `explicit` (names of `SamplingParams`); raises `InvalidInput` for others."""
    out = common_pb2.SamplingParams()
    for name, value in explicit.items():
        if name not in _PARAM_FIELDS:
            raise InvalidInput(f"{name}: not a sampling setting", param=name)
        if value is None:
            continue
        try:
            if name in ("stop", "stop_token_ids"):
                if isinstance(value, dict):
                    raise TypeError("must be a list")
                getattr(out, name).extend([value] if isinstance(value, str) else value)
            elif name == "logit_bias":
                out.logit_bias.update(value)
            else:
                setattr(out, name, value)
        except NO_FIT as error:
            raise InvalidInput(f"{name}: got {show(value)}; {error}", param=name) from None
    return out


def generate_to_pb(call: public.GenerateCall) -> public_pb2.GenerateRequest:
    out = public_pb2.GenerateRequest(
        params=explicit_to_pb(call.params),
        is_unlimited="max_tokens" in call.params and call.params["max_tokens"] is None,
    )
    _set_plain(out, call, "echo_prompt_ids")
    try:
        if isinstance(call.prompt, str):
            out.text = call.prompt
        else:
            out.token_ids.SetInParent()
            out.token_ids.ids.extend(call.prompt)
    except NO_FIT as error:
        message = f"prompt: must be text in valid Unicode or a list of token ids ({error})"
        raise InvalidInput(message, param="prompt") from None
    return out


def _set_plain(
    out: public_pb2.GenerateRequest | public_pb2.ChatRequest, call: public.GenerateCall | public.ChatCall, *more: str
) -> None:
    """The fields that both calls have, and `more`; raises `InvalidInput` for one of another type."""
    names = ("model", "request_id", "cache_salt", "priority", "timeout_s", *more)
    _set(out, {name: getattr(call, name) for name in names})


def _set(out: Any, values: dict[str, Any]) -> None:
    """Set fields of a message; raises `InvalidInput` for a value that one does not take."""
    for name, value in values.items():
        try:
            if isinstance(value, list):
                getattr(out, name).extend(value)
            else:
                setattr(out, name, value)
        except NO_FIT as error:
            raise InvalidInput(f"{name}: got {show(value)}; {error}", param=name) from None


def tokenize_to_pb(model: str, text: str, add_special_tokens: bool) -> public_pb2.TokenizeRequest:
    out = public_pb2.TokenizeRequest()
    _set(out, {"model": model, "text": text, "add_special_tokens": add_special_tokens})
    return out


def detokenize_to_pb(model: str, ids: list[int], skip_special_tokens: bool) -> public_pb2.DetokenizeRequest:
    out = public_pb2.DetokenizeRequest()
    _set(out, {"model": model, "ids": ids, "skip_special_tokens": skip_special_tokens})
    return out


def abort_to_pb(request_id: str) -> public_pb2.AbortRequest:
    out = public_pb2.AbortRequest()
    _set(out, {"request_id": request_id})
    return out


def generate_from_pb(pb: public_pb2.GenerateRequest) -> public.GenerateCall:
    kind = pb.WhichOneof("prompt")
    if kind is None:
        raise InvalidInput("prompt: got nothing; give text or token_ids", param="prompt")
    return public.GenerateCall(
        prompt=pb.text if kind == "text" else list(pb.token_ids.ids),
        model=pb.model,
        params=explicit_params(pb.params) | ({"max_tokens": None} if pb.is_unlimited else {}),
        request_id=pb.request_id,
        cache_salt=pb.cache_salt,
        priority=pb.priority,
        timeout_s=pb.timeout_s,
        echo_prompt_ids=pb.echo_prompt_ids,
    )


def _template_kwargs_json(value: dict[str, Any]) -> str:
    try:
        return json.dumps(value) if value else ""
    except NO_FIT as error:
        message = f"template_kwargs: got {show(value)}; must be JSON values ({error})"
        raise InvalidInput(message, param="template_kwargs") from None


def chat_to_pb(call: public.ChatCall) -> public_pb2.ChatRequest:
    messages = []
    for index, message in enumerate(call.messages):
        try:
            messages.append(public_pb2.ChatMessage(**message))
        except NO_FIT as error:
            path = f"messages[{index}]"
            raise InvalidInput(f"{path}: must have role and content, both text ({error})", param=path) from None
    out = public_pb2.ChatRequest(
        messages=messages,
        params=explicit_to_pb(call.params),
        template_kwargs_json=_template_kwargs_json(call.template_kwargs),
    )
    more = () if call.add_generation_prompt is None else ("add_generation_prompt",)
    _set_plain(out, call, "continue_final_message", *more)
    return out


def chat_from_pb(pb: public_pb2.ChatRequest) -> public.ChatCall:
    try:
        template_kwargs = json.loads(pb.template_kwargs_json or "{}")
    except ValueError as error:
        raise InvalidInput(f"template_kwargs_json: malformed JSON: {error}", param="template_kwargs_json") from None
    if not isinstance(template_kwargs, dict):
        raise InvalidInput("template_kwargs_json: must be a JSON object", param="template_kwargs_json")
    messages = []
    for message in pb.messages:
        named = {"name": message.name} if message.name else {}
        messages.append({"role": message.role, "content": message.content, **named})
    return public.ChatCall(
        messages=messages,
        model=pb.model,
        params=explicit_params(pb.params),
        request_id=pb.request_id,
        cache_salt=pb.cache_salt,
        priority=pb.priority,
        timeout_s=pb.timeout_s,
        template_kwargs=template_kwargs,
        add_generation_prompt=pb.add_generation_prompt if pb.HasField("add_generation_prompt") else None,
        continue_final_message=pb.continue_final_message,
    )


def chunk_to_pb(chunk: public.Chunk) -> public_pb2.GenerateChunk:
    out = public_pb2.GenerateChunk(
        request_id=chunk.request_id,
        sequence=chunk.sequence,
        index_from=chunk.index_from,
        text=chunk.text,
        token_ids=chunk.token_ids,
        finish_reason=chunk.finish_reason or "",
        stop_reason="" if chunk.stop_reason is None else str(chunk.stop_reason),
        prompt_token_ids=chunk.prompt_token_ids,
        system_fingerprint=chunk.system_fingerprint,
        kv_path=chunk.kv_path,
    )
    for token_id, entry in zip(chunk.token_ids, chunk.logprobs or (), strict=False):
        out.logprobs.add(
            token_id=token_id,
            logprob=entry.logprob,
            rank=entry.rank,
            top_ids=entry.top_ids,
            top_logprobs=entry.top_logprobs,
        )
    if chunk.usage is not None:
        out.usage.prompt_tokens = chunk.usage.prompt_tokens
        out.usage.completion_tokens = chunk.usage.completion_tokens
        out.usage.cached_tokens = chunk.usage.cached_tokens
    return out


def chunk_from_pb(pb: public_pb2.GenerateChunk) -> public.Chunk:
    usage = None
    if pb.HasField("usage"):
        usage = public.Usage(pb.usage.prompt_tokens, pb.usage.completion_tokens, pb.usage.cached_tokens)
    logprobs = [TokenLogprobs(e.logprob, e.rank, list(e.top_ids), list(e.top_logprobs)) for e in pb.logprobs]
    return public.Chunk(
        request_id=pb.request_id,
        sequence=pb.sequence,
        index_from=pb.index_from,
        text=pb.text,
        token_ids=list(pb.token_ids),
        logprobs=logprobs or None,
        finish_reason=pb.finish_reason or None,
        stop_reason=pb.stop_reason or None,
        usage=usage,
        prompt_token_ids=list(pb.prompt_token_ids),
        system_fingerprint=pb.system_fingerprint,
        kv_path=pb.kv_path,
    )
