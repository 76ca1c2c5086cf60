"""`POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request
from starlette.responses import Response

from octavo.errors import InvalidInput, OctavoError, Problem, show
from octavo.gateway.frontend import Frontend
from octavo.gateway.http.answer import (
    DONE,
    UNSET,
    Chat,
    ChatChoice,
    ChatLogprobs,
    ChunkChoice,
    Delta,
    Message,
    sse,
)
from octavo.gateway.http.body import read_model
from octavo.gateway.http.connection import EventStream, while_connected
from octavo.gateway.http.error import error_body, json_response
from octavo.gateway.http.field import GenerateFields
from octavo.gateway.http.logprob import chat_logprobs
from octavo.gateway.http.run import Run, start
from octavo.gateway.job import Job, OutputDelta
from octavo.gateway.template_option import template_options
from octavo.text.tokenizer import Tokenizer


class ChatRequest(GenerateFields):
    messages: list[Any]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: dict[str, Any] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None

    def job(self) -> Job:
        """The job; raises `InvalidInput`."""
        self._refuse_unsupported()
        explicit = self.sampling()
        # A chat without a limit runs to its end or to the context's.
        explicit.setdefault("max_tokens", None)
        if self.max_completion_tokens is not None:
            explicit["max_tokens"] = self.max_completion_tokens
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidInput("top_logprobs: only allowed when logprobs is true", param="top_logprobs")
        if self.logprobs:
            explicit["logprobs"] = self.top_logprobs or 0
        return Job(
            model=self.model or "",
            messages=self.messages,
            template_options=template_options(
                self.add_generation_prompt, self.continue_final_message, self.chat_template_kwargs
            ),
            add_special_tokens=bool(self.add_special_tokens),
            explicit=explicit,
            cache_salt=self.cache_salt or "",
            priority=self.priority or 0,
            field="messages",
        )

    def in_own_words(self, error: InvalidInput) -> InvalidInput:
        """An error about sampling settings, with the names that this request gave them."""
        names = {"logprobs": "top_logprobs"}
        if self.max_completion_tokens is not None:
            names["max_tokens"] = "max_completion_tokens"
        parts = error.message.split("; ")
        for index, part in enumerate(parts):
            field, colon, rest = part.partition(": ")
            parts[index] = names.get(field, field) + colon + rest
        return type(error)("; ".join(parts), param=names.get(error.param, error.param))

    def _refuse_unsupported(self) -> None:
        kind = (self.response_format or {}).get("type", "text")
        if kind != "text":
            allowed = "only the type 'text' is supported"
            raise InvalidInput.of([Problem("response_format", show(kind), allowed)])
        if self.tools and self.tool_choice != "none":
            raise InvalidInput("tools: tool calls are not supported; leave tools out", param="tools")
        if self.chat_template is not None:
            message = "chat_template: a request cannot bring its own; start the server with --chat-template"
            raise InvalidInput(message, param="chat_template")


class Endpoint:
    """The handler."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend

    async def __call__(self, request: Request) -> Response:
        fields = await read_model(request, ChatRequest, self._frontend.config.max_body_bytes)
        try:
            run = await start(self._frontend, request, [fields.job()], "chatcmpl")
        except InvalidInput as error:
            raise fields.in_own_words(error) from None
        answer = _Answer(run, fields, self._frontend.model.tokenizer, self._frontend.config.response_role)
        if fields.stream:
            return EventStream(answer.events(), run.headers, run.close)
        try:
            body = await while_connected(request.receive, answer.collect(), lambda _: None)
        finally:
            run.close()
        return json_response(body, headers=run.headers)


class _Answer:
    def __init__(self, run: Run, fields: ChatRequest, tokenizer: Tokenizer, role: str) -> None:
        self._run = run
        self._fields = fields
        self._tokenizer = tokenizer
        self._role = role

    async def collect(self) -> Chat:
        """The unstreamed answer."""
        choices: dict[int, ChatChoice] = {}
        async for _, batch in self._run.batches():
            for delta in batch:
                choice = choices.get(delta.sequence)
                if choice is None:
                    choice = choices[delta.sequence] = ChatChoice(delta.sequence, Message(self._role, ""))
                    choice.token_ids = [] if self._fields.return_token_ids else UNSET
                self._add(choice, delta)
        body = self._body("chat.completion", [choices[index] for index in sorted(choices)])
        if self._fields.return_token_ids:
            body.prompt_token_ids = self._run.generations[0].prompt_token_ids
        body.usage, body.octavo = self._run.usage(), self._run.octavo()
        return body

    async def events(self) -> AsyncIterator[bytes]:
        """The streamed answer: role first, then content; an error after the first event becomes an error event."""
        told: set[int] = set()
        try:
            async for _, batch in self._run.batches():
                out = b""
                for delta in batch:
                    if delta.sequence not in told:
                        out += sse(self._role_chunk(delta.sequence, is_first=not told))
                        told.add(delta.sequence)
                    choice = self._chunk(delta)
                    if choice.delta.content or choice.finish_reason or choice.logprobs or choice.token_ids:
                        out += sse(self._body("chat.completion.chunk", [choice]))
                if out:
                    yield out
            if self._fields.include_usage:
                body = self._body("chat.completion.chunk", [])
                body.usage, body.octavo = self._run.usage(), self._run.octavo()
                yield sse(body)
        except OctavoError as error:
            yield sse(error_body(error))
        yield DONE

    def _add(self, choice: ChatChoice, delta: OutputDelta) -> None:
        choice.message.content += delta.text
        choice.finish_reason, choice.stop_reason = delta.finish_reason, delta.stop_reason
        more = self._logprobs(delta)
        if choice.logprobs is None:
            choice.logprobs = more
        elif more is not None:
            choice.logprobs.content += more.content
        if isinstance(choice.token_ids, list):
            choice.token_ids = choice.token_ids + delta.token_ids

    def _role_chunk(self, sequence: int, is_first: bool) -> Chat:
        body = self._body("chat.completion.chunk", [ChunkChoice(sequence, Delta(self._role, ""))])
        if is_first and self._fields.return_token_ids:
            body.prompt_token_ids = self._run.generations[0].prompt_token_ids
        return body

    def _chunk(self, delta: OutputDelta) -> ChunkChoice:
        content = delta.text or UNSET
        choice = ChunkChoice(delta.sequence, Delta(content=content), self._logprobs(delta), delta.finish_reason)
        if delta.finish_reason is not None:
            choice.stop_reason = delta.stop_reason
        choice.token_ids = delta.token_ids if self._fields.return_token_ids else UNSET
        return choice

    def _logprobs(self, delta: OutputDelta) -> ChatLogprobs | None:
        if not self._fields.logprobs or not delta.token_ids:
            return None
        return chat_logprobs(self._tokenizer, delta)

    def _body(self, kind: str, choices: list[ChatChoice] | list[ChunkChoice]) -> Chat:
        first = self._run.generations[0]
        body = Chat(first.request_id, first.created_unix_s, first.model, choices, kind)
        body.system_fingerprint = first.fingerprint or None
        if self._fields.stream and self._fields.include_usage:
            body.usage = None
        return body
