"""Typed errors, and the only map from them to gRPC and HTTP codes.

Every error says which field was wrong, what its value was and what would be right.  Services raise these classes;
`octavo.rpc` turns them into gRPC statuses and back, the gateway turns them into OpenAI error bodies.  The module knows
neither grpc nor HTTP libraries: codes are plain names and numbers.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """One thing wrong with an input: the field's path, the value as shown to the user, and what is allowed."""

    field: str
    value: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.field}: got {self.value}; {self.allowed}"


def show(value: object, limit: int = 80) -> str:
    """A value as it may appear in an error message: its repr, cut to `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


class ErrorDetail(msgspec.Struct, frozen=True, array_like=True):
    """An error as it travels on a wire (msgpack, or the fields of `octavo.v1.Error`)."""

    code: str
    message: str
    param: str = ""
    retry_after_s: float = 0.0


class OctavoError(Exception):
    """Base of all errors that cross a service border.

    `code` is the stable name on the wire, `grpc_status` the name of a `grpc.StatusCode`, `http_status` the HTTP code
    and `kind` OpenAI's error type.
    """

    code: ClassVar[str] = "internal"
    grpc_status: ClassVar[str] = "INTERNAL"
    http_status: ClassVar[int] = 500
    kind: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, param: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    def detail(self) -> ErrorDetail:
        return ErrorDetail(self.code, self.message, self.param, self.retry_after_s)


class InvalidInput(OctavoError):
    """A request or a configuration that can never work as given."""

    code, grpc_status, http_status, kind = "invalid_input", "INVALID_ARGUMENT", 400, "invalid_request_error"

    @classmethod
    def of(cls, problems: list[Problem]) -> InvalidInput:
        """One error that lists all `problems`; `param` is the first one's field."""
        return cls("; ".join(str(p) for p in problems), param=problems[0].field if problems else "")


class TooLong(InvalidInput):
    """A prompt (plus max_tokens) that no registered worker can hold."""

    code = "context_length_exceeded"


class BodyTooLarge(OctavoError):
    code, grpc_status, http_status, kind = "body_too_large", "INVALID_ARGUMENT", 413, "invalid_request_error"


class HeadTooLarge(OctavoError):
    code, grpc_status, http_status, kind = "headers_too_large", "INVALID_ARGUMENT", 431, "invalid_request_error"


class Unauthorized(OctavoError):
    code, grpc_status, http_status, kind = "unauthorized", "UNAUTHENTICATED", 401, "authentication_error"


class NotFound(OctavoError):
    code, grpc_status, http_status, kind = "not_found", "NOT_FOUND", 404, "not_found_error"


class ModelNotFound(NotFound):
    code = "model_not_found"


class Busy(OctavoError):
    """The caller is over a limit, or the queue is full; `retry_after_s` is a truthful estimate."""

    code, grpc_status, http_status, kind = "busy", "RESOURCE_EXHAUSTED", 429, "rate_limit_error"


class Unavailable(OctavoError):
    """No worker for a stage, or no compatible pair."""

    code, grpc_status, http_status, kind = "unavailable", "UNAVAILABLE", 503, "service_unavailable"


class UpstreamLost(Unavailable):
    """The worker that held a stream is gone and nothing could take the stream over."""

    code, http_status = "upstream_lost", 503


class DeadlineExceeded(OctavoError):
    code, grpc_status, http_status, kind = "deadline_exceeded", "DEADLINE_EXCEEDED", 504, "timeout_error"


class Aborted(OctavoError):
    """The client, or an operator, cancelled the request."""

    code, grpc_status, http_status, kind = "aborted", "CANCELLED", 499, "aborted"


class StaleAttempt(OctavoError):
    """A worker has already seen a higher attempt of this request."""

    code, grpc_status, http_status, kind = "stale_attempt", "FAILED_PRECONDITION", 409, "internal_error"


class InternalError(OctavoError):
    """A fault of ours; the message says what failed, never a stack trace."""


def _all(cls: type[OctavoError]) -> list[type[OctavoError]]:
    return [cls, *(d for sub in cls.__subclasses__() for d in _all(sub))]


def from_detail(detail: ErrorDetail) -> OctavoError:
    """The typed error for a detail received from another service; an unknown code becomes `InternalError`."""
    by_code = {c.code: c for c in reversed(_all(OctavoError)[1:])}
    cls = by_code.get(detail.code, InternalError)
    return cls(detail.message, param=detail.param, retry_after_s=detail.retry_after_s)
