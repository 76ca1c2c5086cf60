"""`EngineProtocol`: what every way to run an engine offers, in process or behind services."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from octavo.request import Emission, Request


@runtime_checkable
class EngineProtocol(Protocol):
    """Take requests and abort them.  Errors of one request end that request, and are never raised to others.

    `EngineCore`, `LLMEngine` and `AsyncLLM` satisfy it.
    """

    def add_request(self, request: Request, /) -> object:
        """Queue a request; raises a typed error when it can never run."""
        ...

    def abort_request(self, request_id: str, sequences: list[int] | None = None) -> object:
        """End a request, or some of its sequences; their blocks are free when this step's reads end."""
        ...

    def has_unfinished_requests(self) -> bool: ...


@runtime_checkable
class StepEngine(EngineProtocol, Protocol):
    """An engine that its owner drives; `add_request` is idempotent by (request id, attempt)."""

    def step(self) -> list[Emission]:
        """Run one step (or nothing) and return what it put out."""
        ...
