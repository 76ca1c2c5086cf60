"""Chat messages as templates get them: checked, copied, their content in the shape the template works with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.errors import InvalidInput, show

Message = dict[str, Any]

TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Kinds of content parts that are text → the field that holds it."""


def normalize(messages: Sequence[Message], *, keeps_lists: bool, wraps_strings: bool) -> list[Message]:
    """Fresh copies of `messages`; raises `InvalidInput` that names the first bad field.

    Lists of parts are joined by newlines unless `keeps_lists`; `wraps_strings` turns strings into lists of one part.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes) or not messages:
        raise _bad("messages", messages, "must be a list of at least one message")
    out = []
    for i, message in enumerate(messages):
        if not isinstance(message, dict):
            raise _bad(f"messages[{i}]", message, "must be an object with role and content")
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise _bad(f"messages[{i}].role", role, "must be a string such as system, user or assistant")
        content = _content(message.get("content"), f"messages[{i}].content")
        if isinstance(content, list) and not keeps_lists:
            content = "\n".join(part["text"] for part in content)
        elif isinstance(content, str) and wraps_strings:
            content = [{"type": "text", "text": content}]
        out.append(message | {"content": content})
    return out


def text_of(content: str | None) -> str:
    return content or ""


def _content(content: Any, field: str) -> str | list[dict[str, str]]:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _bad(field, content, "must be a string or a list of text parts")
    return [{"type": "text", "text": _part(part, f"{field}[{i}]")} for i, part in enumerate(content)]


def _part(part: Any, field: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type", "text") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in TEXT_PARTS:
        raise _bad(f"{field}.type", kind, "this model reads text parts only")
    text = part.get(TEXT_PARTS[kind])
    if not isinstance(text, str):
        raise _bad(f"{field}.{TEXT_PARTS[kind]}", text, "must be a string")
    return text


def _bad(field: str, value: object, allowed: str) -> InvalidInput:
    return InvalidInput(f"{field}: got {show(value)}; {allowed}", param=field)
