"""The messages that travel over ZMQ: tagged, positional msgpack structs behind a version byte.

Fields and union members are only appended, each with a default, so that version N reads N-1 and the other way round.
`encode` puts the version byte before the body; `decode` refuses versions it does not know.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from octavo.errors import ErrorDetail
from octavo.kv.record import WorkerRecord
from octavo.request import Emission, Request

WIRE_VERSION = 1
WIRE_MIN_VERSION = 1

T = TypeVar("T")


class UnknownVersion(ValueError):
    """A frame of a protocol version outside [WIRE_MIN_VERSION, WIRE_VERSION]."""


# --- engine process ← front --------------------------------------------------------------------------------------


class SubmitWork(msgspec.Struct, array_like=True, tag="submit"):
    request: Request


class AbortWork(msgspec.Struct, array_like=True, tag="abort"):
    """End a request (all attempts up to `attempt`), or only the named sequences of it."""

    request_id: str
    attempt: int
    sequences: list[int] | None = None


class PauseWork(msgspec.Struct, array_like=True, tag="pause"):
    """Stop (or, with `is_paused` false, resume) scheduling these requests: their session cannot take tokens."""

    request_ids: list[str]
    is_paused: bool = True


class Shutdown(msgspec.Struct, array_like=True, tag="shutdown"):
    """Finish nothing more; release everything and exit 0."""


ToEngine = SubmitWork | AbortWork | PauseWork | Shutdown


# --- engine process → front --------------------------------------------------------------------------------------


class PhaseNotice(msgspec.Struct, array_like=True, tag="phase"):
    """A declared phase of start-up (`loading`, `warmup`, `self_test`), its progress 0..1 and its time limit."""

    name: str
    progress: float
    limit_s: float
    detail: str = ""


class EngineReady(msgspec.Struct, array_like=True, tag="ready"):
    """Loaded and self-tested.  `record` lacks only the addresses, which the front fills in."""

    record: WorkerRecord


class EngineFault(msgspec.Struct, array_like=True, tag="fault"):
    """The engine cannot go on; the incarnation ends."""

    error: ErrorDetail


class RequestState(msgspec.Struct, array_like=True):
    """Where a live request is: `queued`, `waiting_kv`, `preempted`, `running` or `paused`."""

    request_id: str
    attempt: int
    state: str
    num_output_tokens: int = 0


class EngineStats(msgspec.Struct, array_like=True):
    """Gauges and counters after a step; counters run from the start of the incarnation."""

    num_running: int = 0
    num_waiting: int = 0
    num_blocks: int = 0
    num_free_blocks: int = 0
    num_evictable_blocks: int = 0
    num_steps: int = 0
    num_preemptions: int = 0
    num_prompt_tokens: int = 0
    num_generation_tokens: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    step_ms: float = 0.0
    num_step_tokens: int = 0
    num_waiting_requests: int = 0


class StepDone(msgspec.Struct, array_like=True, tag="step"):
    """Everything one step put out, for all sessions, in one message."""

    emissions: list[Emission]
    stats: EngineStats
    states: list[RequestState] = []


FromEngine = PhaseNotice | EngineReady | EngineFault | StepDone


# --- worker → gateway (ROUTER → DEALER), and the DEALER's hello ----------------------------------------------------


class DealerHello(msgspec.Struct, array_like=True, tag="hello"):
    """First frame of a DEALER: proves that the path works; the session acknowledges it before any Submit."""

    session_id: str


class TokenFrame(msgspec.Struct, array_like=True, tag="tokens"):
    """One step's emissions for one session.  `incarnation` guards against a worker that restarted on the address."""

    incarnation: str
    emissions: list[Emission]


ToGateway = TokenFrame
ToWorker = DealerHello


# --- worker → router (PUB → SUB) -------------------------------------------------------------------------------------


class LoadReport(msgspec.Struct, array_like=True, tag="load"):
    """What a worker tells every router several times a second; `live` are its live (request id, attempt) pairs."""

    worker_id: str
    incarnation: str
    sequence: int
    is_ready: bool
    stats: EngineStats
    live: list[tuple[str, int]] = []


FromWorker = LoadReport


class Codec(Generic[T]):
    """Encoder and decoder of one message union, for the protocol versions `min_version` to `version`."""

    def __init__(
        self, union: type[T] | object, version: int = WIRE_VERSION, min_version: int = WIRE_MIN_VERSION
    ) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(union)
        self._version, self._min_version = version, min_version

    def encode(self, message: T) -> bytes:
        return bytes((self._version,)) + self._encoder.encode(message)

    def decode(self, frame: bytes | memoryview) -> T:
        """The message in `frame`; raises `UnknownVersion`, or `msgspec.DecodeError` for a malformed body."""
        version = frame[0] if len(frame) else 0
        if not self._min_version <= version <= self._version:
            raise UnknownVersion(f"wire version {version}; this side speaks {self._min_version} to {self._version}")
        return self._decoder.decode(memoryview(frame)[1:])


TO_ENGINE: Codec[ToEngine] = Codec(ToEngine)
FROM_ENGINE: Codec[FromEngine] = Codec(FromEngine)
TO_GATEWAY: Codec[ToGateway] = Codec(ToGateway)
TO_WORKER: Codec[ToWorker] = Codec(ToWorker)
FROM_WORKER: Codec[FromWorker] = Codec(FromWorker)
