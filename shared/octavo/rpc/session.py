"""The messages of a session (gateway process ↔ worker) as plain structs; `octavo.rpc.convert` maps them to protobuf."""

from __future__ import annotations

import msgspec

from octavo.errors import ErrorDetail
from octavo.kv.record import PROTOCOL_MIN_VERSION, PROTOCOL_VERSION
from octavo.request import Request


class Hello(msgspec.Struct, frozen=True):
    """First message of a session: who the gateway process is and which protocol versions it speaks."""

    gateway_id: str
    gateway_incarnation: str
    protocol_min: int = PROTOCOL_MIN_VERSION
    protocol_max: int = PROTOCOL_VERSION


class HelloReply(msgspec.Struct, frozen=True):
    """The worker's answer.  `session_token` (16 bytes) is the DEALER's routing id on `token_address`."""

    worker_id: str
    incarnation: str
    token_address: str
    session_token: bytes
    session_id: str
    lease_s: float
    protocol: int
    curve_key: bytes = b""


class PathAck(msgspec.Struct, frozen=True):
    """The DEALER's hello arrived: the gateway may submit."""


class Submit(msgspec.Struct, frozen=True):
    """Start a request.  Idempotent by (request id, attempt)."""

    request: Request


class SubmitReply(msgspec.Struct, frozen=True):
    """`error` None: accepted."""

    request_id: str
    attempt: int
    error: ErrorDetail | None = None


class Abort(msgspec.Struct, frozen=True):
    """End a request (`sequences` empty) or some of its sequences.  An unknown request leaves a tombstone."""

    request_id: str
    attempt: int
    sequences: tuple[int, ...] = ()


class Pause(msgspec.Struct, frozen=True):
    """Stop, or with `is_paused` false resume, generating for a request whose client does not read."""

    request_id: str
    attempt: int
    is_paused: bool


class Attach(msgspec.Struct, frozen=True):
    """Take over a live request's tokens on this session; `next_index` maps each sequence to the first index wanted."""

    request_id: str
    attempt: int
    next_index: dict[int, int]


class AttachReply(msgspec.Struct, frozen=True):
    request_id: str
    attempt: int
    error: ErrorDetail | None = None


class Resend(msgspec.Struct, frozen=True):
    """Send again the emissions of these sequences from these output indexes on."""

    request_id: str
    attempt: int
    from_index: dict[int, int]


class Heartbeat(msgspec.Struct, frozen=True):
    number: int


class SilentRequest(msgspec.Struct, frozen=True):
    """A request of the session that put out nothing for a second.

    `state` is `queued`, `waiting_kv`, `preempted`, `running`, `paused`, or `ended` for one that ended a moment ago.
    `sent` maps each sequence to the number of output tokens sent so far: a gateway that has fewer asks Resend.
    """

    request_id: str
    attempt: int
    state: str
    num_output_tokens: int
    sent: dict[int, int]


class HeartbeatStates(msgspec.Struct, frozen=True):
    """Answer to a heartbeat, given only while the engine steps."""

    number: int
    engine_age_s: float
    silent: tuple[SilentRequest, ...] = ()


ToWorkerMessage = Hello | Submit | Abort | Pause | Attach | Resend | Heartbeat
FromWorkerMessage = HelloReply | PathAck | SubmitReply | AttachReply | HeartbeatStates
