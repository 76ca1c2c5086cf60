"""Collected output of a request."""

from __future__ import annotations

import msgspec

from octavo.request import TokenLogprobs
from octavo.rpc.public import Chunk, Usage


class Choice(msgspec.Struct):
    """One sequence of an answer.  `logprobs` has one entry per token where they were asked for."""

    index: int
    text: str = ""
    token_ids: list[int] = msgspec.field(default_factory=list)
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: str | None = None


class Output(msgspec.Struct):
    """A whole answer; `text`, `token_ids` and `finish_reason` are those of the first choice."""

    request_id: str
    choices: list[Choice]
    usage: Usage | None = None
    prompt_token_ids: list[int] = []
    system_fingerprint: str = ""
    kv_path: str = ""

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def token_ids(self) -> list[int]:
        return self.choices[0].token_ids

    @property
    def finish_reason(self) -> str | None:
        return self.choices[0].finish_reason


class Collector:
    """Joins chunks to an `Output`."""

    def __init__(self) -> None:
        self._output = Output("", [])
        self._choices: dict[int, Choice] = {}

    def add(self, chunk: Chunk) -> None:
        out = self._output
        out.request_id = chunk.request_id or out.request_id
        out.usage = chunk.usage or out.usage
        out.prompt_token_ids = chunk.prompt_token_ids or out.prompt_token_ids
        out.system_fingerprint = chunk.system_fingerprint or out.system_fingerprint
        out.kv_path = chunk.kv_path or out.kv_path
        if not (chunk.token_ids or chunk.text or chunk.finish_reason):
            return
        choice = self._choices.setdefault(chunk.sequence, Choice(chunk.sequence))
        choice.text += chunk.text
        choice.token_ids.extend(chunk.token_ids)
        if chunk.logprobs:
            choice.logprobs = (choice.logprobs or []) + chunk.logprobs
        choice.finish_reason = chunk.finish_reason or choice.finish_reason
        choice.stop_reason = chunk.stop_reason or choice.stop_reason

    def result(self) -> Output:
        self._output.choices = [self._choices[index] for index in sorted(self._choices)]
        return self._output
