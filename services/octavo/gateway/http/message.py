"""Chat messages: checked, with lists of text parts joined into one text."""

from __future__ import annotations

from typing import Any

from octavo.errors import InvalidInput, Problem, show


def read_messages(messages: list[Any]) -> list[dict[str, Any]]:
    """Messages as a chat template takes them: `content` is always a string.  Raises `InvalidInput`."""
    if not messages:
        raise InvalidInput.of([Problem("messages", "no messages", "at least one is needed")])
    return [_message(f"messages[{index}]", message) for index, message in enumerate(messages)]


def _message(path: str, message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise InvalidInput.of([Problem(path, show(message), "must be an object with role and content")])
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidInput.of([Problem(f"{path}.role", show(role), "must be a string such as 'user'")])
    return {**message, "content": _content(f"{path}.content", message.get("content"), role)}


def _content(path: str, content: Any, role: str) -> str:
    if isinstance(content, str):
        return content
    if content is None and role == "assistant":
        return ""
    if isinstance(content, list):
        return "\n".join(_part(f"{path}[{index}]", part) for index, part in enumerate(content))
    raise InvalidInput.of([Problem(path, show(content), "must be a string or a list of text parts")])


def _part(path: str, part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise InvalidInput.of([Problem(path, show(part), "must be an object such as {'type': 'text', 'text': '…'}")])
    kind = part.get("type")
    if kind not in ("text", "input_text"):
        raise InvalidInput.of([Problem(f"{path}.type", show(kind), "this model takes only parts of type 'text'")])
    text = part.get("text")
    if not isinstance(text, str):
        raise InvalidInput.of([Problem(f"{path}.text", show(text), "must be a string")])
    return text
