"""`SessionTable`: the sessions that gateways hold with this worker, and their leases.  Pure: times are arguments."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Protocol

from octavo.rpc.session import FromWorkerMessage


class Outlet(Protocol):
    """Where a session's control messages go; see `octavo.rpc.worker.SessionStream`."""

    def send(self, message: FromWorkerMessage) -> None: ...

    def close(self) -> None: ...


@dataclass
class Session:
    """One gateway process's session.  `stream` is None once its control stream broke; the lease runs on."""

    session_id: str
    token: bytes
    gateway_id: str
    gateway_incarnation: str
    stream: Outlet | None
    heard_s: float
    is_path_ready: bool = False
    is_blocked: bool = False

    def send(self, message: FromWorkerMessage) -> None:
        if self.stream is not None:
            self.stream.send(message)


class SessionTable:
    """Verbs: `open`, `heard`, `disconnect`, `expire`."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._by_id: dict[str, Session] = {}
        self._by_token: dict[bytes, Session] = {}

    def open(self, gateway_id: str, gateway_incarnation: str, stream: Outlet, now_s: float) -> Session:
        """A new session with fresh random names."""
        session = Session(secrets.token_hex(8), secrets.token_bytes(16), gateway_id, gateway_incarnation, stream, now_s)
        self._by_id[session.session_id] = session
        self._by_token[session.token] = session
        return session

    def heard(self, session: Session, now_s: float) -> None:
        """A message came: the lease starts again."""
        session.heard_s = now_s

    def disconnect(self, session: Session) -> None:
        """The control stream broke; the lease runs from the last message."""
        session.stream = None

    def expire(self, now_s: float) -> list[Session]:
        """Remove and return the sessions whose lease ended."""
        gone = [s for s in self._by_id.values() if now_s - s.heard_s > self.lease_s]
        for session in gone:
            del self._by_id[session.session_id]
            del self._by_token[session.token]
        return gone

    def by_id(self, session_id: str) -> Session | None:
        return self._by_id.get(session_id)

    def by_token(self, token: bytes) -> Session | None:
        return self._by_token.get(token)

    def __len__(self) -> int:
        return len(self._by_id)

    def all(self) -> list[Session]:
        return list(self._by_id.values())

    def check_integrity(self) -> None:
        assert len(self._by_id) == len(self._by_token), "a session lacks its token"
        for token, session in self._by_token.items():
            assert session.token == token, "a session is filed under another token"
            assert self._by_id.get(session.session_id) is session, "a session is filed under another id"
