"""`AsyncClient`: the SDK for asyncio."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any

import msgspec

from octavo.client.output import Collector, Output
from octavo.errors import InvalidInput, Problem, show
from octavo.rpc.public import ChatCall, Chunk, GenerateCall, Health, ModelInfo
from octavo.rpc.public_client import PublicClient
from octavo.sampling_params import SamplingParams

CALL_TIMEOUT_S = 10.0
PLAIN_OPTIONS = ("model", "request_id", "cache_salt", "priority", "timeout_s")
CHAT_OPTIONS = ("template_kwargs", "add_generation_prompt", "continue_final_message")


class AsyncClient:
    """A gateway's gRPC API for asyncio.  Use it as an async context manager, or call `close`.

        async with AsyncClient("127.0.0.1:8001") as client:
            async for chunk in client.stream("Once upon a time", max_tokens=32):
                print(chunk.text, end="")

    Options of `generate`, `stream`, `chat` and `stream_chat`: `model`, `request_id` (a label for `abort`),
    `cache_salt`, `priority`, `timeout_s`, and any field of `SamplingParams` (`max_tokens=32`, `temperature=0`, …) or
    `params=SamplingParams(…)`, which sets all of them.  Settings that are not given take the server's defaults.
    A request whose iteration is left early is cancelled at the server.
    """

    def __init__(self, address: str = "127.0.0.1:8001", *, call_timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._rpc = PublicClient(address)
        self._timeout_s = call_timeout_s

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def stream(self, prompt: str | Sequence[int], **options: Any) -> AsyncGenerator[Chunk, None]:
        """Chunks of the answer to a text or to token ids, as they are generated."""
        return self._rpc.generate(generate_call(prompt, options))

    async def generate(self, prompt: str | Sequence[int], **options: Any) -> Output:
        """The whole answer to a text or to token ids."""
        return await _collect(self.stream(prompt, **options))

    def stream_chat(self, messages: Sequence[dict[str, Any]], **options: Any) -> AsyncGenerator[Chunk, None]:
        """Chunks of the answer to a conversation.

        Also takes `template_kwargs`, `add_generation_prompt` and `continue_final_message`.
        """
        return self._rpc.chat(chat_call(messages, options))

    async def chat(self, messages: Sequence[dict[str, Any]], **options: Any) -> Output:
        """The whole answer to a conversation."""
        return await _collect(self.stream_chat(messages, **options))

    async def models(self) -> list[ModelInfo]:
        """The models that this gateway serves."""
        return await self._rpc.models(self._timeout_s)

    async def tokenize(self, text: str, *, model: str = "", add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text."""
        return await self._rpc.tokenize(model, text, add_special_tokens, self._timeout_s)

    async def detokenize(self, ids: Sequence[int], *, model: str = "", skip_special_tokens: bool = False) -> str:
        """The text of token ids."""
        return await self._rpc.detokenize(model, _list("ids", ids, "token ids"), skip_special_tokens, self._timeout_s)

    async def abort(self, request_id: str) -> bool:
        """End the live requests with this label; returns whether there was one."""
        return await self._rpc.abort(request_id, self._timeout_s)

    async def health(self) -> Health:
        """Whether the gateway works, and whether a worker is ready."""
        return await self._rpc.health(self._timeout_s)

    async def server_info(self) -> dict[str, Any]:
        """The resolved configuration of every service of the cluster."""
        info = await self._rpc.info(self._timeout_s)
        return dict(json.loads(info.config_json))

    async def close(self) -> None:
        await self._rpc.close()


def generate_call(prompt: str | Sequence[int], options: dict[str, Any]) -> GenerateCall:
    call = GenerateCall(prompt=prompt if isinstance(prompt, str) else _list("prompt", prompt, "a text or token ids"))
    rest = _take(call, options, (*PLAIN_OPTIONS, "echo_prompt_ids"))
    call.params = _explicit(rest)
    return call


def chat_call(messages: Sequence[dict[str, Any]], options: dict[str, Any]) -> ChatCall:
    call = ChatCall(messages=_list("messages", messages, "a list of messages, each with role and content"))
    rest = _take(call, options, (*PLAIN_OPTIONS, *CHAT_OPTIONS))
    call.params = _explicit(rest)
    return call


def _list(field: str, value: Any, allowed: str) -> list[Any]:
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise InvalidInput.of([Problem(field, show(value), f"must be {allowed}")])
    return list(value)


def _take(call: GenerateCall | ChatCall, options: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Put the named options into `call`; return the others."""
    rest = dict(options)
    for name in names:
        if name in rest:
            setattr(call, name, rest.pop(name))
    return rest


def _explicit(options: dict[str, Any]) -> dict[str, Any]:
    """Sampling settings by name.  `params` gives all of them; single options override it."""
    params = options.pop("params", None)
    if not isinstance(params, SamplingParams | None):
        raise InvalidInput.of([Problem("params", show(params), "must be SamplingParams")])
    given = {} if params is None else msgspec.structs.asdict(params)
    return given | options


async def _collect(chunks: AsyncGenerator[Chunk, None]) -> Output:
    collector = Collector()
    async with aclosing(chunks):
        async for chunk in chunks:
            collector.add(chunk)
    return collector.result()
