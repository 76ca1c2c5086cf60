"""`EngineProtocol`: what every way to run an engine offers, in process or behind services."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from octavo.request import Emission, Request


@runtime_checkable
class EngineProtocol(Protocol):
    """Add requests, step, collect emissions.  Errors of one request arrive as its last emission, never as a raise."""

    def add_request(self, request: Request) -> None:
        """Queue a request.  Idempotent by (request id, attempt); raises a typed error when it can never run."""
        ...

    def abort_request(self, request_id: str, sequences: list[int] | None = None) -> None:
        """End a request, or some of its sequences; their blocks are free when this step's reads end."""
        ...

    def step(self) -> list[Emission]:
        """Run one step (or nothing) and return what it put out."""
        ...

    def has_unfinished_requests(self) -> bool: ...
