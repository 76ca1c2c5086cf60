"""`Client`: the SDK without asyncio, over an `AsyncClient` that runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Sequence
from types import TracebackType
from typing import Any, TypeVar

from octavo.client.aio import CALL_TIMEOUT_S, AsyncClient
from octavo.client.output import Output
from octavo.errors import InvalidInput
from octavo.rpc.public import Chunk, Health, ModelInfo

T = TypeVar("T")


class Client:
    """A gateway's gRPC API.  Use it as a context manager, or call `close`; safe to share between threads.

        with Client("127.0.0.1:8001") as client:
            print(client.generate("Once upon a time", max_tokens=32, temperature=0).text)

    Options are those of `AsyncClient`.
    """

    def __init__(self, address: str = "127.0.0.1:8001", *, call_timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="octavo-client", daemon=True)
        self._thread.start()
        self._is_closed = False
        self._client = self._run(_make(address, call_timeout_s))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def stream(self, prompt: str | Sequence[int], **options: Any) -> Generator[Chunk, None, None]:
        """Chunks of the answer to a text or to token ids, as they are generated."""
        return self._iterate(self._client.stream(prompt, **options))

    def generate(self, prompt: str | Sequence[int], **options: Any) -> Output:
        """The whole answer to a text or to token ids."""
        return self._run(self._client.generate(prompt, **options))

    def stream_chat(self, messages: Sequence[dict[str, Any]], **options: Any) -> Generator[Chunk, None, None]:
        """Chunks of the answer to a conversation."""
        return self._iterate(self._client.stream_chat(messages, **options))

    def chat(self, messages: Sequence[dict[str, Any]], **options: Any) -> Output:
        """The whole answer to a conversation."""
        return self._run(self._client.chat(messages, **options))

    def models(self) -> list[ModelInfo]:
        """The models that this gateway serves."""
        return self._run(self._client.models())

    def tokenize(self, text: str, *, model: str = "", add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text."""
        return self._run(self._client.tokenize(text, model=model, add_special_tokens=add_special_tokens))

    def detokenize(self, ids: Sequence[int], *, model: str = "", skip_special_tokens: bool = False) -> str:
        """The text of token ids."""
        return self._run(self._client.detokenize(ids, model=model, skip_special_tokens=skip_special_tokens))

    def abort(self, request_id: str) -> bool:
        """End the live requests with this label; returns whether there was one."""
        return self._run(self._client.abort(request_id))

    def health(self) -> Health:
        """Whether the gateway works, and whether a worker is ready."""
        return self._run(self._client.health())

    def server_info(self) -> dict[str, Any]:
        """The resolved configuration of every service of the cluster."""
        return self._run(self._client.server_info())

    def close(self) -> None:
        """Close the connection and end the thread.  Closing twice does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._run(self._client.close())
        self._run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise InvalidInput("client: it is closed; make a new one")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _iterate(self, chunks: AsyncGenerator[Chunk, None]) -> Generator[Chunk, None, None]:
        try:
            while True:
                try:
                    yield self._run(_next(chunks))
                except StopAsyncIteration:
                    return
        finally:
            self._run(_close(chunks))


async def _make(address: str, call_timeout_s: float) -> AsyncClient:
    # grpc.aio channels belong to the loop that made them.
    return AsyncClient(address, call_timeout_s=call_timeout_s)


async def _next(chunks: AsyncGenerator[Chunk, None]) -> Chunk:
    return await anext(chunks)


async def _close(chunks: AsyncGenerator[Chunk, None]) -> None:
    await chunks.aclose()
