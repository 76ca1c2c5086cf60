"""`POST /v1/completions`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request
from starlette.responses import Response

from octavo.errors import InvalidInput, OctavoError, Problem, show
from octavo.gateway.frontend import Frontend
from octavo.gateway.http.answer import DONE, UNSET, Completion, CompletionChoice, CompletionLogprobs, sse
from octavo.gateway.http.body import read_model
from octavo.gateway.http.connection import EventStream, while_connected
from octavo.gateway.http.error import error_body, json_response
from octavo.gateway.http.field import GenerateFields
from octavo.gateway.http.logprob import completion_logprobs, join
from octavo.gateway.http.run import Run, start
from octavo.gateway.job import Job, OutputDelta
from octavo.text.tokenizer import Tokenizer

MAX_PROMPTS = 256


class CompletionRequest(GenerateFields):
    prompt: Any
    """A string, a list of strings, a list of token ids, or a list of lists of token ids."""
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None
    add_special_tokens: bool | None = None

    def jobs(self) -> list[Job]:
        """One job per prompt; raises `InvalidInput`."""
        if self.echo:
            raise InvalidInput("echo: got true; returning the prompt is not supported", param="echo")
        if self.suffix:
            raise InvalidInput(f"suffix: got {show(self.suffix)}; insertion is not supported", param="suffix")
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise InvalidInput.of([Problem("best_of", show(self.best_of), "only the value of n is supported")])
        explicit = self.sampling()
        if self.logprobs is not None:
            explicit["logprobs"] = self.logprobs
        jobs = [Job(text=p, field=f) if isinstance(p, str) else Job(token_ids=p, field=f) for f, p in self._prompts()]
        for job in jobs:
            job.model, job.explicit = self.model or "", explicit
            job.cache_salt, job.priority = self.cache_salt or "", self.priority or 0
            job.add_special_tokens = self.add_special_tokens is not False
        return jobs

    def _prompts(self) -> list[tuple[str, str | list[int]]]:
        prompt = self.prompt
        if isinstance(prompt, str) or _is_ids(prompt):
            return [("prompt", prompt)]
        if isinstance(prompt, list) and len(prompt) > MAX_PROMPTS:
            raise InvalidInput.of([Problem("prompt", f"{len(prompt)} prompts", f"at most {MAX_PROMPTS} are allowed")])
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
            out = []
            for index, item in enumerate(prompt):
                if type(item) is not type(prompt[0]) or not (isinstance(item, str) or _is_ids(item)):
                    break
                out.append((f"prompt[{index}]", item))
            else:
                return out
        allowed = "must be a string, a list of strings, a list of token ids, or a list of lists of token ids"
        raise InvalidInput.of([Problem("prompt", show(prompt), allowed)])


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and set(map(type, value)) == {int}


class Endpoint:
    """The handler.  Choice `index` is prompt index × n + sequence."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend

    async def __call__(self, request: Request) -> Response:
        fields = await read_model(request, CompletionRequest, self._frontend.config.max_body_bytes)
        run = await start(self._frontend, request, fields.jobs(), "cmpl")
        answer = _Answer(run, fields, self._frontend.model.tokenizer)
        if fields.stream:
            return EventStream(answer.events(), run.headers, run.close)
        try:
            body = await while_connected(request.receive, answer.collect(), lambda _: None)
        finally:
            run.close()
        return json_response(body, headers=run.headers)


class _Answer:
    def __init__(self, run: Run, fields: CompletionRequest, tokenizer: Tokenizer) -> None:
        self._run = run
        self._fields = fields
        self._tokenizer = tokenizer
        self._num_per_prompt = fields.n or 1
        self._offsets: dict[int, int] = {}

    async def collect(self) -> Completion:
        """The unstreamed answer."""
        choices: dict[int, CompletionChoice] = {}
        async for index, batch in self._run.batches():
            for delta in batch:
                part = self._choice(index, delta)
                whole = choices.get(part.index)
                if whole is None:
                    choices[part.index] = part
                    if self._fields.return_token_ids:
                        part.prompt_token_ids = self._run.generations[index].prompt_token_ids
                    continue
                whole.text += part.text
                whole.logprobs = join(whole.logprobs, part.logprobs)
                whole.finish_reason, whole.stop_reason = part.finish_reason, part.stop_reason
                if isinstance(whole.token_ids, list) and isinstance(part.token_ids, list):
                    whole.token_ids = whole.token_ids + part.token_ids
        body = self._body([choices[index] for index in sorted(choices)])
        body.usage, body.octavo = self._run.usage(), self._run.octavo()
        return body

    async def events(self) -> AsyncIterator[bytes]:
        """The streamed answer; an error after the first event becomes an error event."""
        told: set[int] = set()
        try:
            async for index, batch in self._run.batches():
                out = b""
                for delta in batch:
                    choice = self._choice(index, delta)
                    if not (choice.text or choice.finish_reason or choice.logprobs or choice.token_ids):
                        continue
                    if self._fields.return_token_ids and choice.index not in told:
                        told.add(choice.index)
                        choice.prompt_token_ids = self._run.generations[index].prompt_token_ids
                    out += sse(self._body([choice]))
                if out:
                    yield out
            if self._fields.include_usage:
                body = self._body([])
                body.usage, body.octavo = self._run.usage(), self._run.octavo()
                yield sse(body)
        except OctavoError as error:
            yield sse(error_body(error))
        yield DONE

    def _choice(self, generation: int, delta: OutputDelta) -> CompletionChoice:
        index = generation * self._num_per_prompt + delta.sequence
        choice = CompletionChoice(index, delta.text, self._logprobs(index, delta), delta.finish_reason)
        choice.stop_reason = delta.stop_reason
        choice.token_ids = delta.token_ids if self._fields.return_token_ids else UNSET
        return choice

    def _logprobs(self, index: int, delta: OutputDelta) -> CompletionLogprobs | None:
        if delta.logprobs is None or self._fields.logprobs is None:
            return None
        offset = self._offsets.get(index, 0)
        self._offsets[index] = offset + sum(len(self._tokenizer.piece(i)) for i in delta.token_ids)
        return completion_logprobs(self._tokenizer, delta, offset) if delta.token_ids else None

    def _body(self, choices: list[CompletionChoice]) -> Completion:
        first = self._run.generations[0]
        body = Completion(first.request_id, first.created_unix_s, first.model, choices)
        body.system_fingerprint = first.fingerprint or None
        if self._fields.stream and self._fields.include_usage:
            body.usage = None
        return body
