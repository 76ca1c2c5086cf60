"""`FrontService`: the Worker calls: sessions, status, probe.

It joins the engine (commands in, steps out), the token path (frames out), and the tables of sessions and requests.
Everything here runs on the loop; the token path's thread calls in through `call_soon_threadsafe`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from octavo import faults
from octavo.errors import InvalidInput, OctavoError, Unavailable
from octavo.kv.record import PROTOCOL_MIN_VERSION, PROTOCOL_VERSION, WorkerRecord
from octavo.request import Emission, Request
from octavo.rpc import session as msg
from octavo.rpc.worker import SessionStream
from octavo.wire.message import (
    TO_GATEWAY,
    AbortWork,
    EngineStats,
    PauseWork,
    StepDone,
    SubmitWork,
    ToEngine,
    TokenFrame,
)
from octavo.worker.check import check_admission, check_request
from octavo.worker.request_table import RequestTable, WorkRequest
from octavo.worker.session_table import Session, SessionTable

logger = logging.getLogger(__name__)


class Engine(Protocol):
    """What the service needs of `EngineLink`."""

    record: WorkerRecord | None
    stats: EngineStats

    def send(self, command: ToEngine) -> None: ...

    def age_s(self) -> float: ...

    def is_stepping(self, limit_s: float) -> bool: ...


class TokenPath(Protocol):
    """What the service needs of `TokenServer`."""

    address: str

    def send(self, token: bytes, frame: bytes) -> None: ...

    def forget(self, token: bytes) -> None: ...


class FrontService:
    """Serves sessions; owns the request and session tables."""

    def __init__(
        self,
        worker_id: str,
        incarnation: str,
        engine: Engine,
        tokens: TokenPath,
        *,
        session_lease_s: float,
        ready_limit_s: float,
        max_num_waiting: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.worker_id, self.incarnation = worker_id, incarnation
        self.sessions = SessionTable(session_lease_s)
        self.requests = RequestTable()
        self.is_draining = False
        self.num_resends = 0
        self._engine, self._tokens = engine, tokens
        self._ready_limit_s = ready_limit_s
        self._max_num_waiting = max_num_waiting
        self._clock = clock

    @property
    def is_ready(self) -> bool:
        """Whether new requests are taken: the engine steps and the worker does not drain."""
        return not self.is_draining and self._engine.is_stepping(self._ready_limit_s)

    # --- session ---

    async def session(self, stream: SessionStream) -> None:
        hello = await stream.receive()
        if not isinstance(hello, msg.Hello):
            raise InvalidInput("a session begins with a hello")
        session = self._open(hello, stream)
        try:
            while (message := await stream.receive()) is not None:
                self.sessions.heard(session, self._clock())
                self._handle(session, message)
        finally:
            self.sessions.disconnect(session)

    def _open(self, hello: msg.Hello, stream: SessionStream) -> Session:
        protocol = min(hello.protocol_max, PROTOCOL_VERSION)
        if protocol < max(hello.protocol_min, PROTOCOL_MIN_VERSION):
            raise InvalidInput(
                f"protocol: the gateway speaks {hello.protocol_min} to {hello.protocol_max}, this worker "
                f"{PROTOCOL_MIN_VERSION} to {PROTOCOL_VERSION}",
                param="protocol",
            )
        session = self.sessions.open(hello.gateway_id, hello.gateway_incarnation, stream, self._clock())
        session.send(
            msg.HelloReply(
                worker_id=self.worker_id,
                incarnation=self.incarnation,
                token_address=self._tokens.address,
                session_token=session.token,
                session_id=session.session_id,
                lease_s=self.sessions.lease_s,
                protocol=protocol,
            )
        )
        return session

    def _handle(self, session: Session, message: msg.ToWorkerMessage) -> None:
        match message:
            case msg.Submit(request=request):
                self._submit(session, request)
            case msg.Abort(request_id=request_id, attempt=attempt, sequences=sequences):
                self._abort(request_id, attempt, sequences)
            case msg.Pause():
                work = self.requests.get_live(message.request_id, message.attempt)
                if work is not None:
                    work.is_paused_by_client = message.is_paused
                    self._settle_pauses((work,))
            case msg.Attach():
                self._attach(session, message)
            case msg.Resend():
                self._resend(session, message.request_id, message.attempt, message.from_index)
            case msg.Heartbeat(number=number):
                if self._engine.is_stepping(self._ready_limit_s):
                    silent = self.requests.silent(session.session_id, self._clock())
                    session.send(msg.HeartbeatStates(number, self._engine.age_s(), silent))
            case msg.Hello():
                logger.warning("gateway %s said hello twice on one session", session.gateway_id)

    def _submit(self, session: Session, request: Request) -> None:
        error = None
        try:
            faults.point("worker.submit")
            self._accept(session, request)
        except OctavoError as refused:
            error = refused.detail()
        session.send(msg.SubmitReply(request.request_id, request.attempt, error))

    def _accept(self, session: Session, request: Request) -> None:
        if self.requests.knows(request.request_id, request.attempt):
            self.requests.attach(request.request_id, request.attempt, session.session_id)
            return
        record = self._engine.record
        if record is None or not self.is_ready:
            state = "is draining" if self.is_draining else "is not ready"
            raise Unavailable(f"worker {self.worker_id} {state}", retry_after_s=1.0)
        if not session.is_path_ready:
            raise InvalidInput("submit came before the session's token path was acknowledged")
        check_request(request, record)
        check_admission(request, self._engine.stats, self._max_num_waiting, time.time())
        work, old = self.requests.admit(request, session.session_id, self._clock())
        if old is not None:
            self._engine.send(AbortWork(old.request_id, old.attempt))
        self._engine.send(SubmitWork(request))
        self._settle_pauses((work,))

    def _abort(self, request_id: str, attempt: int, sequences: tuple[int, ...]) -> None:
        work = self.requests.abort(request_id, attempt, sequences, self._clock())
        if work is not None:
            self._engine.send(AbortWork(request_id, work.attempt, list(sequences) or None))

    def _attach(self, session: Session, message: msg.Attach) -> None:
        error = None
        try:
            work = self.requests.attach(message.request_id, message.attempt, session.session_id)
        except OctavoError as refused:
            error = refused.detail()
        session.send(msg.AttachReply(message.request_id, message.attempt, error))
        if error is None:
            self._settle_pauses((work,))
            self._resend(session, message.request_id, message.attempt, message.next_index)

    def _resend(self, session: Session, request_id: str, attempt: int, from_index: dict[int, int]) -> None:
        if not self.requests.belongs(request_id, attempt, session.session_id):
            return
        emissions = self.requests.replay(request_id, attempt, from_index)
        if emissions:
            self.num_resends += 1
            self._send_frame(session, emissions)

    # --- token path ---

    def on_step(self, step: StepDone) -> None:
        """Split one step's emissions by session: one frame per session."""
        now_s = self._clock()
        by_session: dict[str, list[Emission]] = {}
        for emission in step.emissions:
            work = self.requests.record(emission, now_s)
            if work is not None:
                by_session.setdefault(work.session_id, []).append(emission)
        for session_id, emissions in by_session.items():
            session = self.sessions.by_id(session_id)
            if session is not None:
                self._send_frame(session, emissions)
        self.requests.note_states(step.states)

    def _send_frame(self, session: Session, emissions: list[Emission]) -> None:
        frame = TO_GATEWAY.encode(TokenFrame(self.incarnation, emissions))
        faults.frame("worker.token_frame", frame, lambda data: self._tokens.send(session.token, data))

    def on_path_hello(self, token: bytes, session_id: str) -> None:
        """A DEALER said hello: acknowledge it on the session's control stream."""
        session = self.sessions.by_token(token)
        if session is None or session.session_id != session_id:
            logger.warning("a hello on the token path named no session")
            return
        session.is_path_ready = True
        session.send(msg.PathAck())

    def on_path_blocked(self, token: bytes, is_blocked: bool) -> None:
        """A session's queue is full, or has drained: pause, or go on with, its requests only."""
        session = self.sessions.by_token(token)
        if session is not None and session.is_blocked != is_blocked:
            session.is_blocked = is_blocked
            logger.info("session %s is %s", session.session_id, "blocked" if is_blocked else "writable again")
            self._settle_pauses(self.requests.of_session(session.session_id))

    def _settle_pauses(self, works: Iterable[WorkRequest]) -> None:
        changes: dict[bool, list[str]] = {}
        for work in works:
            session = self.sessions.by_id(work.session_id)
            change = self.requests.pause(work, session is not None and session.is_blocked)
            if change is not None:
                changes.setdefault(change, []).append(work.request_id)
        for is_paused, request_ids in changes.items():
            self._engine.send(PauseWork(request_ids, is_paused))

    # --- upkeep ---

    def sweep(self) -> None:
        """End sessions whose lease is over, with their requests; forget what ended long ago."""
        now_s = self._clock()
        for session in self.sessions.expire(now_s):
            works = self.requests.of_session(session.session_id)
            logger.info("lease of session %s ended: %d requests aborted", session.session_id, len(works))
            for work in works:
                self._abort(work.request_id, work.attempt, ())
            self._tokens.forget(session.token)
            if session.stream is not None:
                session.stream.close()
        self.requests.sweep(now_s)

    def abort_all(self) -> None:
        for work in self.requests.live():
            self._abort(work.request_id, work.attempt, ())

    def check_integrity(self) -> None:
        self.sessions.check_integrity()
        self.requests.check_integrity()
