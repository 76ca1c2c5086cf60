"""Request bodies: bounded while they are read, decoded strictly, checked against a pydantic model."""

from __future__ import annotations

import json
import math
import re
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from octavo.errors import Aborted, BodyTooLarge, InvalidInput
from octavo.gateway.http.error import from_validation

T = TypeVar("T", bound=BaseModel)

_LONE_SURROGATE = re.compile(r"(?i)\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f])|(?<!\\ud[89ab]..)\\ud[c-f]")


async def read_model(request: Request, model: type[T], limit: int) -> T:
    """The request's JSON body as a `model`; raises `BodyTooLarge` or `InvalidInput`."""
    value = decode(await read_bytes(request, limit))
    if not isinstance(value, dict):
        raise InvalidInput(f"body: got {_kind(value)}; must be a JSON object", param="body")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise from_validation(error) from None


async def read_bytes(request: Request, limit: int) -> bytes:
    """The whole body; stops reading (chunked bodies too) as soon as it passes `limit` bytes."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise BodyTooLarge(f"body: got {int(announced)} bytes; at most {limit} are allowed", param="body")
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise BodyTooLarge(f"body: got more than {limit} bytes; at most {limit} are allowed", param="body")
            parts.append(part)
    except ClientDisconnect:
        raise Aborted("the client disconnected while it sent the request") from None
    return b"".join(parts)


def decode(data: bytes) -> Any:
    """Strict JSON: valid UTF-8, finite numbers, no lone surrogates."""
    try:
        return msgspec.json.decode(data)
    except RecursionError:
        raise InvalidInput("body: the JSON is nested too deeply", param="body") from None
    except msgspec.DecodeError as error:
        raise _explain(data, str(error)) from None


def _explain(data: bytes, reason: str) -> InvalidInput:
    """Say more of malformed JSON than where it broke."""
    if not data.strip():
        return InvalidInput("body: got nothing; must be a JSON object", param="body")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return InvalidInput(f"body: must be UTF-8; byte {error.start} is not", param="body")
    try:
        found = _not_finite(json.loads(text), "")
    except (ValueError, RecursionError):
        found = None
    if found is not None:
        path, value = found
        return InvalidInput(f"{path}: got {value}; must be a finite number", param=path)
    if _LONE_SURROGATE.search(text):
        return InvalidInput("body: a text has half a surrogate pair; must be valid Unicode", param="body")
    return InvalidInput(f"body: malformed JSON: {reason}", param="body")


def _not_finite(value: Any, path: str) -> tuple[str, float] | None:
    if isinstance(value, float) and not math.isfinite(value):
        return path or "body", value
    if isinstance(value, dict):
        items = ((f"{path}.{key}" if path else key, child) for key, child in value.items())
    elif isinstance(value, list):
        items = ((f"{path}[{index}]", child) for index, child in enumerate(value))
    else:
        return None
    return next((found for child_path, child in items if (found := _not_finite(child, child_path))), None)


def _kind(value: Any) -> str:
    return {list: "an array", str: "a string", type(None): "null", bool: "a boolean"}.get(type(value), "a number")
