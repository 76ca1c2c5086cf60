"""Errors as HTTP answers: OpenAI's error body for everything."""

from __future__ import annotations

import logging
import math
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.errors import InternalError, InvalidInput, NotFound, OctavoError, Problem, show

logger = logging.getLogger(__name__)

_HTTP_KINDS = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


def error_body(error: OctavoError) -> dict[str, Any]:
    """OpenAI's error object for a typed error."""
    body = {"message": error.message, "type": error.kind, "param": error.param or None, "code": error.code}
    return {"error": body}


def error_response(error: OctavoError) -> Response:
    headers = {}
    if error.http_status in (429, 503):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    return json_response(error_body(error), error.http_status, headers)


def json_response(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def from_validation(error: ValidationError | RequestValidationError) -> InvalidInput:
    """All problems that pydantic found, in terms of the request's own fields."""
    problems: dict[str, Problem] = {}
    for entry in error.errors():
        path = _path(entry["loc"])
        shown = "nothing" if entry["type"] == "missing" else show(entry.get("input"))
        problems.setdefault(path, Problem(path, shown, entry["msg"].replace("Input should", "it should")))
    return InvalidInput.of(list(problems.values()))


def _path(loc: tuple[int | str, ...]) -> str:
    out = ""
    for part in loc:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return out or "body"


class CrashGuard:
    """The outermost layer: a fault of ours becomes one log entry and, before the answer has begun, an error body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def watched(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception:
            logger.exception("handling %s failed", scope.get("path", "a connection"))
            if not has_begun:
                await error_response(InternalError("internal error; see the gateway's log"))(scope, receive, send)


def install(app: FastAPI) -> None:
    """Answer every exception with an OpenAI error body."""

    async def typed(_: Request, error: OctavoError) -> Response:
        return error_response(error)

    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return error_response(from_validation(error))

    async def http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 404:
            return error_response(NotFound(f"path: got {request.url.path!r}; this server has no such path"))
        message = str(error.detail)
        if error.status_code == 405:
            allowed = {k.lower(): v for k, v in (error.headers or {}).items()}.get("allow", "another method")
            message = f"method: got {request.method} for {request.url.path}; allowed: {allowed}"
        kind = _HTTP_KINDS.get(error.status_code, "invalid_request_error")
        code = message.split(":")[0].lower().replace(" ", "_") if error.status_code != 405 else "method_not_allowed"
        body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
        return json_response(body, error.status_code, dict(error.headers or {}))

    app.add_middleware(CrashGuard)
    app.add_exception_handler(OctavoError, typed)  # type: ignore[arg-type]  # starlette wants Exception handlers
    app.add_exception_handler(RequestValidationError, invalid)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, http)  # type: ignore[arg-type]
