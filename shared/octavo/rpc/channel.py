"""Client channels: message limits, keepalive, and quick reconnection."""

from __future__ import annotations

import grpc

MAX_MESSAGE_BYTES = 64 * 2**20

LIMITS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)
_CLIENT: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Against its name: how long one attempt to connect may take.  A busy or distant peer needs more than a moment.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
    # Channels of one process must not share a connection: a session's stream and its probes fail separately.
    ("grpc.use_local_subchannel_pool", 1),
)


def open_channel(address: str) -> grpc.aio.Channel:
    """An insecure asyncio channel to `host:port`; connects on first use."""
    return grpc.aio.insecure_channel(address, options=(*LIMITS, *_CLIENT))
