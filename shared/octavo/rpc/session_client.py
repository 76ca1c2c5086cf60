"""`WorkerSession`: a gateway process's session with one worker: control stream and token path together.

It delivers emissions as they arrive.  Order, gaps and old attempts are the caller's to handle, with `resend`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from typing import Protocol

from octavo.errors import OctavoError, Unavailable, UpstreamLost, from_detail
from octavo.kv.record import WorkerRecord
from octavo.request import Emission, Request
from octavo.rpc import session
from octavo.rpc.worker import ControlStream, WorkerClient
from octavo.wire.message import ToGateway
from octavo.wire.token_path import TokenClient

logger = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
OPEN_TIMEOUT_S = 5.0
LOST_AFTER_S = 6.0
"""A worker that answers no heartbeat for this long has an engine that does not step, or is gone."""
HELLO_RETRY_S = 0.5


class SessionListener(Protocol):
    """Who hears what a session receives.  Called on the event loop; must not block or raise."""

    def on_emissions(self, link: WorkerSession, emissions: Sequence[Emission]) -> None: ...

    def on_heartbeat(self, link: WorkerSession, silent: Sequence[session.SilentRequest]) -> None:
        """Once a second: requests that put out nothing for a second, and those that ended a moment ago."""
        ...

    def on_lost(self, link: WorkerSession, reason: str) -> None:
        """The session is over, once, unless `close` ended it.  The worker may live: probe it."""
        ...


class WorkerSession:
    """An open session with one incarnation of a worker; make it with `open`.

    All verbs but `submit` and `attach` return at once.
    """

    def __init__(self, record: WorkerRecord, listener: SessionListener, client: WorkerClient) -> None:
        self.record = record
        self.engine_age_s = 0.0
        self.is_open = False
        self.session_id = ""
        self._listener = listener
        self._client = client
        self._stream: ControlStream = client.open_stream()
        self._tokens: TokenClient | None = None
        self._waiting: dict[tuple[str, str, int], asyncio.Future[None]] = {}
        self._heard_s = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []
        self._path_ready = asyncio.Event()

    @classmethod
    async def open(
        cls,
        record: WorkerRecord,
        listener: SessionListener,
        gateway_id: str,
        gateway_incarnation: str,
        timeout_s: float = OPEN_TIMEOUT_S,
        receive_queue: int = 64,
        receive_buffer_bytes: int = -1,
    ) -> WorkerSession:
        """Connect: hello, DEALER, path acknowledged.  Raises `Unavailable`, also when another incarnation answers."""
        self = cls(record, listener, WorkerClient(record.grpc_address))
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._hello(gateway_id, gateway_incarnation)
                self._tokens = TokenClient(
                    reply.token_address,
                    reply.session_token,
                    reply.session_id,
                    self._on_messages,
                    receive_queue=receive_queue,
                    receive_buffer_bytes=receive_buffer_bytes,
                )
                self._tasks.append(asyncio.create_task(self._read(), name="session-read"))
                await self._await_path()
        except TimeoutError:
            await self.close()
            raise Unavailable(f"worker {record.worker_id} opened no session within {timeout_s:g} s") from None
        except BaseException:
            await self.close()
            raise
        self.is_open = True
        self._tasks.append(asyncio.create_task(self._beat(), name="session-beat"))
        return self

    async def submit(self, request: Request) -> None:
        """Hand over a request; returns when the worker accepted it, raises its typed refusal or `UpstreamLost`."""
        await self._ask("submit", request.request_id, request.attempt, session.Submit(request))

    async def attach(self, request_id: str, attempt: int, next_index: dict[int, int]) -> None:
        """Take over a live request's tokens, from these output indexes on; raises the worker's refusal."""
        await self._ask("attach", request_id, attempt, session.Attach(request_id, attempt, next_index))

    def abort(self, request_id: str, attempt: int, sequences: Sequence[int] = ()) -> None:
        self._stream.send(session.Abort(request_id, attempt, tuple(sequences)))

    def resend(self, request_id: str, attempt: int, from_index: dict[int, int]) -> None:
        """Ask for the emissions from these output indexes on; they arrive like others."""
        self._stream.send(session.Resend(request_id, attempt, from_index))

    def pause(self, request_id: str, attempt: int, is_paused: bool) -> None:
        """Stop, or go on, generating for one request."""
        self._stream.send(session.Pause(request_id, attempt, is_paused))

    def pause_reading(self, is_paused: bool = True) -> None:
        """Stop, or go on, taking token frames of this session: the worker then pauses all its requests."""
        if self._tokens is not None:
            self._tokens.pause(is_paused)

    async def close(self) -> None:
        """End the session.  Its requests go on until the lease ends, unless they are aborted before."""
        self.is_open = False
        self._fail_waiting("the session was closed")
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._tokens is not None:
            self._tokens.close()
            self._tokens = None
        await self._stream.close()
        await self._client.close()

    async def _hello(self, gateway_id: str, gateway_incarnation: str) -> session.HelloReply:
        self._stream.send(session.Hello(gateway_id, gateway_incarnation))
        reply = await self._stream.receive()
        if not isinstance(reply, session.HelloReply):
            raise Unavailable(f"worker {self.record.worker_id} did not answer the hello of a session")
        if reply.incarnation != self.record.incarnation:
            raise Unavailable(f"worker {self.record.worker_id} restarted: its record is out of date")
        self.session_id = reply.session_id
        return reply

    async def _await_path(self) -> None:
        while not self._path_ready.is_set():
            if self._tasks[0].done():
                raise Unavailable(f"worker {self.record.worker_id} ended the session before it was open")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._path_ready.wait(), HELLO_RETRY_S)
                return
            if self._tokens is not None:
                self._tokens.hello()

    async def _ask(self, kind: str, request_id: str, attempt: int, message: session.ToWorkerMessage) -> None:
        if not self.is_open:
            raise UpstreamLost(f"the session with worker {self.record.worker_id} is over")
        key = (kind, request_id, attempt)
        future = self._waiting.get(key)
        if future is None:
            self._stream.send(message)
            future = self._waiting[key] = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(future)

    def _answer(self, kind: str, reply: session.SubmitReply | session.AttachReply) -> None:
        future = self._waiting.pop((kind, reply.request_id, reply.attempt), None)
        if future is None or future.done():
            return
        if reply.error is None:
            future.set_result(None)
        else:
            future.set_exception(from_detail(reply.error))

    async def _read(self) -> None:
        reason = "the worker ended the session"
        try:
            while (message := await self._stream.receive()) is not None:
                self._heard_s = time.monotonic()
                match message:
                    case session.SubmitReply():
                        self._answer("submit", message)
                    case session.AttachReply():
                        self._answer("attach", message)
                    case session.HeartbeatStates():
                        self.engine_age_s = message.engine_age_s
                        self._listener.on_heartbeat(self, message.silent)
                    case session.PathAck():
                        self._path_ready.set()
        except OctavoError as error:
            reason = error.message
        self._lose(reason)

    async def _beat(self) -> None:
        number = 0
        while self.is_open:
            number += 1
            self._stream.send(session.Heartbeat(number))
            await asyncio.sleep(HEARTBEAT_S)
            silent_s = time.monotonic() - self._heard_s
            if silent_s > LOST_AFTER_S:
                self._lose(f"no heartbeat answered for {silent_s:.1f} s")

    def _lose(self, reason: str) -> None:
        self._fail_waiting(reason)
        if self.is_open:
            self.is_open = False
            self._listener.on_lost(self, reason)

    def _fail_waiting(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(UpstreamLost(f"worker {self.record.worker_id}: {reason}"))

    def _on_messages(self, messages: list[ToGateway]) -> None:
        for frame in messages:
            if frame.incarnation == self.record.incarnation:
                self._listener.on_emissions(self, frame.emissions)
            else:
                logger.warning("dropped a token frame of another incarnation of worker %s", self.record.worker_id)
