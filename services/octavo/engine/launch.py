"""`EngineLaunch`: what a worker's front hands to the engine process, as JSON on an inherited descriptor."""

from __future__ import annotations

import msgspec

from octavo.config.engine import EngineConfig


class EngineLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """`address` is the front's private ipc socket; the descriptors are inherited.

    `parent_fd` is the read end of a pipe that closes when the front ends; `parent_pid` the front's process id.
    `builder` (`module:function`, empty: the real engine) takes `(config, *, beat, notify)` and returns
    `(engine, record)`.
    """

    engine: EngineConfig
    address: str
    heartbeat_fd: int
    parent_fd: int
    parent_pid: int
    load_timeout_s: float
    builder: str = ""
    log_level: str = "info"
    log_format: str = "auto"


def encode(launch: EngineLaunch) -> bytes:
    return msgspec.json.encode(launch)


def decode(data: bytes) -> EngineLaunch:
    return msgspec.json.decode(data, type=EngineLaunch)
