"""Chat templates: messages to the text of a prompt, in a sandbox.

A template is code that comes with a model, and messages come from users.  Templates run in jinja2's immutable sandbox;
what they put out is bounded in size, and in time (looked at between outputs).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2.sandbox import SecurityError

from octavo.errors import InvalidInput, show
from octavo.text.message import Message, normalize, text_of
from octavo.text.template_env import Environment, RenderLimit, iterates_content, tests_for_string
from octavo.text.tokenizer import Tokenizer

MAX_OUTPUT_CHARACTERS = 16 << 20
TIME_LIMIT_S = 5.0

CONTINUE_MARK = "\ue000continue\ue001"
"""Put behind the last message to find where it ends in the rendered text (private-use characters)."""

RESERVED = frozenset({"messages", "add_generation_prompt", "raise_exception", "strftime_now"})


class ChatTemplate:
    """A compiled template; safe to share between threads.

    `source` None stands for a model without a template: `render` then says how to give one.  Raises `InvalidInput` for
    a source that does not parse.  `now` feeds `strftime_now`, `clock` (seconds) the time limit.
    """

    def __init__(
        self,
        source: str | None,
        tokenizer: Tokenizer,
        *,
        now: Callable[[], datetime] = datetime.now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokenizer = tokenizer
        self._clock = clock
        self._template: jinja2.Template | None = None
        self._keeps_lists = self._wraps_strings = False
        if source is None:
            return
        environment = Environment(now)
        try:
            tree = environment.parse(source)
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise InvalidInput(f"chat_template: it does not parse: {error}", param="chat_template") from None
        self._keeps_lists = iterates_content(tree)
        self._wraps_strings = self._keeps_lists and not tests_for_string(tree)

    @property
    def is_available(self) -> bool:
        return self._template is not None

    def render(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **kwargs: Any,
    ) -> str:
        """The prompt's text; encode it with `add_special_tokens=False`.

        A message has a `role` and a `content`: a string, or a list of text parts.  Lists are joined by newlines for
        templates that treat content as a string.  `continue_final_message` leaves the last message open, and excludes
        `add_generation_prompt`.  Further `kwargs` are handed to the template.  Raises `InvalidInput` naming the field.
        """
        if self._template is None:
            raise InvalidInput(
                "messages: the model has no chat template; start with --chat-template FILE, or use completions",
                param="messages",
            )
        clash = RESERVED & kwargs.keys()
        if clash:
            raise InvalidInput(f"chat_template_kwargs: {sorted(clash)[0]} cannot be set", param="chat_template_kwargs")
        if continue_final_message and add_generation_prompt:
            raise InvalidInput(
                "continue_final_message: got True with add_generation_prompt; only one of them can be set",
                param="continue_final_message",
            )
        chat = normalize(messages, keeps_lists=self._keeps_lists, wraps_strings=self._wraps_strings)
        if continue_final_message:
            _mark_end(chat[-1])
        names = self._tokenizer.special_tokens | kwargs
        text = self._run(messages=chat, add_generation_prompt=add_generation_prompt, **names)
        return _cut_at_mark(text) if continue_final_message else text

    def _run(self, **context: Any) -> str:
        assert self._template is not None
        context.setdefault("tools", None)
        context.setdefault("documents", None)
        parts, num_characters, start_s = [], 0, self._clock()
        try:
            for part in self._template.generate(**context):
                num_characters += len(part)
                if num_characters > MAX_OUTPUT_CHARACTERS:
                    raise RenderLimit(f"it puts out more than {MAX_OUTPUT_CHARACTERS} characters")
                if self._clock() - start_s > TIME_LIMIT_S:
                    raise RenderLimit(f"it takes more than {TIME_LIMIT_S:.0f} s")
                parts.append(part)
        except SecurityError as error:
            raise _failed(f"it is not allowed to do this: {error}") from None
        except jinja2.TemplateError as error:
            raise _failed(str(error)) from None
        except Exception as error:  # a template can raise anything that Python operators raise
            raise _failed(f"{type(error).__name__}: {error}") from None
        return "".join(parts)


def _failed(reason: str) -> InvalidInput:
    return InvalidInput(f"messages: the chat template does not accept them: {reason}", param="messages")


def _mark_end(message: Message) -> None:
    content = message.get("content")
    if isinstance(content, list):
        last = next((part for part in reversed(content) if part.get("type") == "text"), None)
        if last is None:
            raise InvalidInput("messages: the last one has no text to continue", param="messages")
        last["text"] += CONTINUE_MARK
    else:
        message["content"] = text_of(content) + CONTINUE_MARK


def _cut_at_mark(text: str) -> str:
    border = text.rfind(CONTINUE_MARK)
    if border < 0:
        raise _failed(f"it does not put out the message to be continued ({show(text[-40:])})")
    return text[:border]
