"""`AsyncLLM`: an engine on a thread of its own, with streams for asyncio."""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from octavo.errors import InternalError, OctavoError, Unavailable
from octavo.llm.args import EngineArgs
from octavo.llm.frontend import Prepared
from octavo.llm.llm_engine import LLMEngine
from octavo.llm.output import RequestOutput
from octavo.llm.prompt import Prompt
from octavo.llm.stream import RequestStream
from octavo.request import Request
from octavo.sampling_params import SamplingParams

Command = Callable[[], None]
Delivery = tuple[RequestStream, "RequestOutput | OctavoError"]


class AsyncLLM:
    """A model in this process for asyncio: `AsyncLLM("smollm2-135m")`; any engine flag is a keyword.

    Only the engine's thread touches the engine; other threads hand it commands.  Call `shutdown()` at the end, or use
    it as an async context manager.
    """

    def __init__(self, model: str | os.PathLike[str] | LLMEngine, **flags: Any) -> None:
        engine = model if isinstance(model, LLMEngine) else LLMEngine.from_engine_args(EngineArgs(model, **flags))
        self._engine = engine
        self._commands: deque[Command] = deque()
        self._wake = threading.Condition()
        self._is_stopping = False
        self._has_ended = False
        self._fault: OctavoError | None = None
        self._streams: dict[str, tuple[RequestStream, asyncio.AbstractEventLoop]] = {}
        self._thread = threading.Thread(target=self._run, name="octavo-engine", daemon=True)
        self._thread.start()

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs) -> AsyncLLM:
        return cls(LLMEngine.from_engine_args(engine_args))

    def add_request(
        self,
        request: str | Request,
        prompt: Prompt | None = None,
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
    ) -> RequestStream:
        """Start a request (an id, a prompt, sampling parameters; or a ready `Request`) and return its stream.

        Call it on a running event loop.  Raises `InvalidInput` for one that can never run and `Unavailable` after
        shutdown; what the engine itself refuses (`Busy`) is raised to the stream's reader.
        """
        self._check_alive()
        frontend = self._engine.frontend
        if isinstance(request, Request):
            prepared = Prepared(request, None)
        else:
            prepared = frontend.prepare(request, prompt, params, priority=priority)
        stream = RequestStream(prepared.request.request_id, self.abort_request)
        loop = asyncio.get_running_loop()
        self._send(lambda: self._start(prepared, stream, loop))
        return stream

    async def generate(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int = 0,
    ) -> AsyncIterator[RequestOutput]:
        """Cumulative outputs of one request: each holds the whole text and all token ids so far.

        Leaving the loop early, or cancelling the task, aborts the request and frees its blocks.
        """
        stream = self.add_request(request_id or secrets.token_hex(16), prompt, params, priority=priority)
        try:
            async for output in stream:
                yield output
        finally:
            stream.close()

    def render_chat(self, messages: list[dict[str, Any]], **options: Any) -> Prompt:
        """The prompt of a conversation by the model's chat template, for `generate`."""
        return self._engine.frontend.render(messages, **{"add_generation_prompt": True, **options})

    async def abort(self, request_id: str) -> None:
        """End a request; its stream gets a last output with the finish reason `abort`."""
        self.abort_request(request_id)

    def abort_request(self, request_id: str, sequences: list[int] | None = None) -> None:
        """As `abort`, or for some sequences only; from any thread.  An id that is not live is ignored."""
        self._send(lambda: self._stop(request_id, sequences))

    def has_unfinished_requests(self) -> bool:
        return bool(self._commands) or bool(self._streams)

    async def stats(self) -> Any:
        """The engine's gauges and counters (`EngineStats`), read between two steps."""
        self._check_alive()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def read() -> None:
            result = self._refusal() or self._engine.stats()
            loop.call_soon_threadsafe(_resolve, answer, result)

        self._send(read)
        return await answer

    def get_default_sampling_params(self) -> SamplingParams:
        return self._engine.frontend.default_params()

    def get_tokenizer(self) -> Any:
        return self._engine.get_tokenizer()

    def shutdown(self) -> None:
        """Abort every request, end the thread and release the engine.  May be called again, from any other thread."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()
        self._thread.join()

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await asyncio.to_thread(self.shutdown)

    def _refusal(self) -> OctavoError | None:
        """Why no request can be taken, if so."""
        if self._fault is None and self._is_stopping:
            return Unavailable("the engine has been shut down")
        return self._fault

    def _check_alive(self) -> None:
        refusal = self._refusal()
        if refusal is not None:
            raise refusal

    def _send(self, command: Command) -> None:
        """Have the engine's thread run `command`; once that thread has ended, commands only refuse, so run it here."""
        with self._wake:
            if not self._has_ended:
                self._commands.append(command)
                self._wake.notify()
                return
        command()

    # What follows runs on the engine's thread.

    def _run(self) -> None:
        try:
            while self._wait():
                self._run_commands()
                if self._engine.has_unfinished_requests():
                    self._deliver({reply.request_id: reply.output() for reply in self._engine.step_replies()})
        except Exception as error:
            self._fault = InternalError(f"the engine failed: {type(error).__name__}: {error}")
            raise
        finally:
            with self._wake:
                self._is_stopping = self._has_ended = True
            self._run_commands()
            refusal = self._refusal()
            assert refusal is not None
            self._deliver(dict.fromkeys(self._streams, refusal))
            self._engine.close()

    def _wait(self) -> bool:
        """Wait until there is something to do; False when the thread is to end."""
        with self._wake:
            while not (self._commands or self._is_stopping or self._engine.has_unfinished_requests()):
                self._wake.wait()
            return not self._is_stopping

    def _run_commands(self) -> None:
        while self._commands:
            self._commands.popleft()()

    def _start(self, prepared: Prepared, stream: RequestStream, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._check_alive()
            self._engine.add_prepared(prepared)
        except OctavoError as error:
            _call(loop, stream.fail, error)
            return
        self._streams[prepared.request.request_id] = (stream, loop)

    def _stop(self, request_id: str, sequences: list[int] | None) -> None:
        output = self._engine.abort_request(request_id, sequences)
        if output is not None:
            self._deliver({request_id: output})

    def _deliver(self, results: Mapping[str, RequestOutput | OctavoError]) -> None:
        """Hand each result to its stream, with one call per event loop; requests of a closed loop are aborted."""
        by_loop: dict[asyncio.AbstractEventLoop, list[Delivery]] = {}
        for request_id, result in results.items():
            if request_id not in self._streams:
                continue
            stream, loop = self._streams[request_id]
            by_loop.setdefault(loop, []).append((stream, result))
            if not isinstance(result, RequestOutput) or result.finished:
                del self._streams[request_id]
        for loop, deliveries in by_loop.items():
            if not _call(loop, _hand_over, deliveries):
                for stream, _ in deliveries:
                    self._streams.pop(stream.request_id, None)
                    self._engine.abort_request(stream.request_id)


def _hand_over(deliveries: list[Delivery]) -> None:
    for stream, result in deliveries:
        if isinstance(result, RequestOutput):
            stream.put(result)
        else:
            stream.fail(result)


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[Any], None], argument: Any) -> bool:
    """Run `function(argument)` on `loop`; False when the loop is closed and nobody can take it."""
    try:
        loop.call_soon_threadsafe(function, argument)
    except RuntimeError:
        return False
    return True


def _resolve(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    if isinstance(result, OctavoError):
        answer.set_exception(result)
    else:
        answer.set_result(result)
