"""Options of the chat template as both edges take them."""

from __future__ import annotations

from typing import Any

from octavo.errors import InvalidInput


def template_options(add: bool | None, is_continued: bool | None, more: dict[str, Any] | None) -> dict[str, Any]:
    """Arguments of the chat template.  Continuing the last message and starting a new one exclude each other."""
    if is_continued and add:
        raise InvalidInput(
            "continue_final_message: cannot be true together with add_generation_prompt",
            param="continue_final_message",
        )
    options = dict(more or {})
    for name in ("messages", "add_generation_prompt", "continue_final_message"):
        if name in options:
            raise InvalidInput(
                f"chat_template_kwargs: {name!r} must be given as a field of its own", param="chat_template_kwargs"
            )
    if "self" in options:
        raise InvalidInput("chat_template_kwargs: 'self' cannot be a template variable", param="chat_template_kwargs")
    options["add_generation_prompt"] = (not is_continued) if add is None else add
    options["continue_final_message"] = bool(is_continued)
    return options
