"""`POST /tokenize` and `POST /detokenize`."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from octavo.errors import InvalidInput
from octavo.gateway.frontend import Frontend
from octavo.gateway.http.body import read_model
from octavo.gateway.http.error import json_response
from octavo.gateway.template_option import template_options


class TokenizeRequest(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    model: str | None = None
    prompt: str | None = None
    messages: list[Any] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    model: str | None = None
    tokens: list[int]
    skip_special_tokens: bool | None = None


class Tokenize:
    """The handler of both directions' first: text or messages to ids."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend

    async def __call__(self, request: Request) -> Response:
        fields = await read_model(request, TokenizeRequest, self._frontend.config.max_body_bytes)
        if (fields.prompt is None) == (fields.messages is None):
            raise InvalidInput("prompt: give either prompt or messages", param="prompt")
        text, adds = fields.prompt or "", fields.add_special_tokens is not False
        if fields.messages is not None:
            options = template_options(
                fields.add_generation_prompt, fields.continue_final_message, fields.chat_template_kwargs
            )
            text = self._frontend.model.render(fields.messages, **options)
            adds = bool(fields.add_special_tokens)
        ids = await self._frontend.tokenize(fields.model or "", text, adds)
        limit = self._frontend.models()[0].max_model_len
        body: dict[str, Any] = {"count": len(ids), "max_model_len": limit, "tokens": ids}
        if fields.return_token_strs:
            body["token_strs"] = [self._frontend.model.tokenizer.piece(i) for i in ids]
        return json_response(body)


class Detokenize:
    """Ids to text."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend

    async def __call__(self, request: Request) -> Response:
        fields = await read_model(request, DetokenizeRequest, self._frontend.config.max_body_bytes)
        text = await self._frontend.detokenize(fields.model or "", fields.tokens, bool(fields.skip_special_tokens))
        return json_response({"prompt": text})
