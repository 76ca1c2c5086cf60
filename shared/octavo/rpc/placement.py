"""What gateways, routers and workers tell each other outside sessions, as plain structs."""

from __future__ import annotations

import msgspec

from octavo.kv.record import WorkerRecord


class PlaceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for workers for one attempt of a request.

    `chain` holds the prompt's chain values (16 bytes each, one per 16 tokens) joined; `max_tokens` 0 means up to the
    context; `exclude` names worker ids that must not be chosen; `numerics` (empty: any) is a required fingerprint.
    """

    request_id: str
    attempt: int
    gateway_incarnation: str
    model: str
    num_prompt_tokens: int
    task: str = "generate"
    namespace: bytes = b""
    chain: bytes = b""
    max_tokens: int = 0
    n: int = 1
    adapter: str = ""
    session_key: str = ""
    priority: int = 0
    deadline_unix_s: float = 0.0
    exclude: tuple[str, ...] = ()
    numerics: str = ""


class CostTerm(msgspec.Struct, frozen=True):
    name: str
    ms: float


class Leg(msgspec.Struct, frozen=True):
    """One worker of a placement; `kv_sources` names workers that hold parts of the prefix, best first."""

    worker: WorkerRecord
    kv_sources: tuple[str, ...] = ()


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The router's answer: a path (`local` or `remote`), its workers, and ranked spares."""

    path: str
    decode: Leg
    prefill: Leg | None = None
    spares: tuple[Leg, ...] = ()
    cost: tuple[CostTerm, ...] = ()
    policy: str = ""
    predicted_cached_tokens: int = 0


class FleetMember(msgspec.Struct, frozen=True, kw_only=True):
    record: WorkerRecord
    is_ready: bool
    heartbeat_age_s: float
    num_in_flight: int = 0
    num_running: int = 0
    num_waiting: int = 0
    num_free_blocks: int = 0


class Fleet(msgspec.Struct, frozen=True):
    """`age_s`: seconds since the router started; a young one may not know every worker yet."""

    members: tuple[FleetMember, ...]
    age_s: float


class ServerInfo(msgspec.Struct, frozen=True):
    """`config_json` is the resolved configuration without secrets."""

    service: str
    version: str
    config_json: str


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`phase`: starting, loading, warmup, self_test, ready, draining or failed."""

    worker_id: str
    incarnation: str
    phase: str
    progress: float = 0.0
    detail: str = ""
    is_ready: bool = False
    is_live: bool = True
    engine_age_s: float = 0.0
    num_running: int = 0
    num_waiting: int = 0
    num_blocks: int = 0
    num_free_blocks: int = 0
    num_sessions: int = 0
    num_live_requests: int = 0
    num_retained_requests: int = 0
    num_preemptions: int = 0
    record: WorkerRecord | None = None


class ProbeResult(msgspec.Struct, frozen=True):
    incarnation: str
    is_live: bool
    engine_age_s: float
