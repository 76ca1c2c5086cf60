"""The FastAPI application: paths and what they accept; the handlers are in the modules beside it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from octavo.gateway.frontend import Frontend
from octavo.gateway.http import chat, completion, error, token
from octavo.gateway.http.status import StatusRoutes
from octavo.version import __version__


def create_app(frontend: Frontend) -> FastAPI:
    """The HTTP API over a frontend."""
    app = FastAPI(title="Octavo", version=__version__, description="OpenAI-compatible API of an Octavo gateway.")
    error.install(app)
    posts: list[tuple[str, Any, type[BaseModel]]] = [
        ("/v1/completions", completion.Endpoint(frontend), completion.CompletionRequest),
        ("/v1/chat/completions", chat.Endpoint(frontend), chat.ChatRequest),
        ("/tokenize", token.Tokenize(frontend), token.TokenizeRequest),
        ("/detokenize", token.Detokenize(frontend), token.DetokenizeRequest),
    ]
    for path, handler, model in posts:
        app.add_api_route(path, handler.__call__, methods=["POST"], response_model=None, openapi_extra=_accepts(model))
    status = StatusRoutes(frontend)
    gets: list[tuple[str, Any]] = [
        ("/v1/models", status.models),
        ("/v1/models/{model:path}", status.model),
        ("/health", status.health),
        ("/ready", status.ready),
        ("/metrics", status.metrics),
        ("/version", status.version),
        ("/server_info", status.server_info),
        ("/load", status.load),
    ]
    for path, handler in gets:
        app.add_api_route(path, handler, methods=["GET"], response_model=None)
    return app


def _accepts(model: type[BaseModel]) -> dict[str, Any]:
    """The request body's schema: bodies are read by hand, so that size is bounded and errors have OpenAI's shape."""
    schema = model.model_json_schema()
    schema = _inline(schema, schema.pop("$defs", {}))
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _inline(value: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_inline(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return _inline(definitions[value["$ref"].rpartition("/")[2]], definitions)
    return {key: _inline(item, definitions) for key, item in value.items()}
