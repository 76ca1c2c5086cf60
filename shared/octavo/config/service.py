"""Settings of the services: gateway, router, worker front, and the cluster that `octavo up` starts."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.option import option

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True)
class LogConfig:
    """What a process says, and how."""

    log_level: str = option("info", "Least severe level that is logged.", choices=LOG_LEVELS)
    log_format: str = option(
        "auto", "Log lines as text or JSON; auto: text on a terminal, else JSON.", choices=("auto", "text", "json")
    )


@dataclass(frozen=True)
class FleetConfig:
    """How gateways and workers find routers."""

    router: tuple[str, ...] = option((), "Routers as host:port, the preferred one first.")


@dataclass(frozen=True)
class GatewayConfig:
    """The HTTP and public gRPC edge."""

    host: str = option("127.0.0.1", "Address that the API listens on.")
    port: int = option(8000, "HTTP port; 0: a free one.", minimum=0, maximum=65535)
    grpc_port: int = option(-1, "gRPC port; -1: the HTTP port + 1, 0: a free one.", minimum=-1, maximum=65535)
    max_body_bytes: int = option(8 * 2**20, "Largest request, HTTP or gRPC.", minimum=1024)
    max_logprobs: int = option(20, "Most logprobs per token that a request may ask for.", minimum=0, maximum=20)
    max_n: int = option(128, "Most choices (n) that a request may ask for.", minimum=1, maximum=128)
    request_timeout_s: float = option(600.0, "Deadline of a request without one of its own.", minimum=1)
    chat_template: str = option("", "Chat template file (jinja); default: the model's own.")
    max_stream_buffer_bytes: int = option(
        1 << 20, "Unread output per stream before the stream is paused.", minimum=4096
    )
    shutdown_timeout_s: float = option(30.0, "Time for open streams to end on shutdown.", minimum=0)
    response_role: str = option("assistant", "Role of answers in chat completions.")


@dataclass(frozen=True)
class RouterConfig:
    """Placement."""

    router_host: str = option("127.0.0.1", "Address that the router listens on.")
    router_port: int = option(0, "gRPC port of the router; 0: a free one.", minimum=0, maximum=65535)
    router_metrics_port: int = option(
        0, "HTTP port for /metrics and /health of the router; 0: a free one.", minimum=0, maximum=65535
    )
    routing_policy: str = option("least_loaded", "Placement policy.", choices=("least_loaded", "round_robin"))
    worker_timeout_s: float = option(5.0, "Heartbeat age at which a worker is probed.", minimum=1)


@dataclass(frozen=True)
class WorkerConfig:
    """The front of an engine worker."""

    worker_host: str = option("127.0.0.1", "Address that the worker listens on and gives to others.")
    worker_port: int = option(0, "gRPC port of the worker; 0: a free one.", minimum=0, maximum=65535)
    worker_metrics_port: int = option(
        0, "HTTP port for /metrics, /health and /ready of the worker; 0: a free one.", minimum=0, maximum=65535
    )
    worker_id: str = option("", "Stable name of this worker; default: made from host and port.")
    role: str = option("both", "Placement preference.", choices=("prefill", "decode", "both"))
    session_lease_s: float = option(10.0, "Time after which a silent session's requests are aborted.", minimum=1)
    ready_limit_s: float = option(5.0, "Engine heartbeat age at which readiness falls.", minimum=0.5)
    live_limit_s: float = option(60.0, "Engine heartbeat age at which liveness falls.", minimum=1)
    load_timeout_s: float = option(1800.0, "Limit of the loading phase.", minimum=1)


@dataclass(frozen=True)
class ClusterConfig:
    """What `octavo up` starts."""

    topology: str = option("aggregated", "Which workers to start.", choices=("aggregated",))
    workers: int = option(1, "Engine workers.", minimum=1, maximum=64)
    restart: bool = option(True, "Restart a service that dies, with backoff.")
    startup_timeout_s: float = option(1800.0, "Limit until every service is ready.", minimum=1)
