"""The public gRPC edge: `octavo.rpc.public_server` over the core service."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from octavo.gateway.frontend import Frontend
from octavo.gateway.job import Job
from octavo.gateway.template_option import template_options
from octavo.rpc import public
from octavo.rpc.placement import ServerInfo
from octavo.version import __version__


class GrpcApi:
    """Satisfies `octavo.rpc.public_server.PublicApi`."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend

    async def generate(self, call: public.GenerateCall) -> AsyncGenerator[public.Chunk, None]:
        job = Job(explicit=call.params)
        if isinstance(call.prompt, str):
            job.text = call.prompt
        else:
            job.token_ids = call.prompt
        async with aclosing(self._run(job, call, "gen", call.echo_prompt_ids)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def chat(self, call: public.ChatCall) -> AsyncGenerator[public.Chunk, None]:
        job = Job(
            messages=call.messages,
            template_options=template_options(
                call.add_generation_prompt, call.continue_final_message, call.template_kwargs
            ),
            add_special_tokens=False,
            explicit={"max_tokens": None, **call.params},
            field="messages",
        )
        async with aclosing(self._run(job, call, "chat", False)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def models(self) -> list[public.ModelInfo]:
        return [public.ModelInfo(card.id, card.max_model_len, card.root) for card in self._frontend.models()]

    async def tokenize(self, model: str, text: str, add_special_tokens: bool) -> tuple[list[int], int]:
        ids = await self._frontend.tokenize(model, text, add_special_tokens)
        return ids, self._frontend.models()[0].max_model_len

    async def detokenize(self, model: str, ids: list[int], skip_special_tokens: bool) -> str:
        return await self._frontend.detokenize(model, ids, skip_special_tokens)

    async def abort(self, request_id: str) -> bool:
        return self._frontend.abort(request_id)

    async def health(self) -> public.Health:
        is_ready = await self._frontend.is_ready()
        return public.Health(True, is_ready, "" if is_ready else "no worker is ready")

    async def info(self) -> ServerInfo:
        return ServerInfo("gateway", __version__, json.dumps(await self._frontend.server_info()))

    async def _run(
        self, job: Job, call: public.GenerateCall | public.ChatCall, prefix: str, echoes: bool
    ) -> AsyncGenerator[public.Chunk, None]:
        job.model, job.label = call.model, call.request_id
        job.cache_salt, job.priority, job.timeout_s = call.cache_salt, call.priority, call.timeout_s
        generation = await self._frontend.start(job, prefix)
        label = call.request_id or generation.request_id
        try:
            if echoes:
                yield public.Chunk(request_id=label, prompt_token_ids=generation.prompt_token_ids)
            async for batch in generation.batches():
                for delta in batch:
                    yield public.Chunk(
                        request_id=label,
                        sequence=delta.sequence,
                        index_from=delta.index_from,
                        text=delta.text,
                        token_ids=delta.token_ids,
                        logprobs=delta.logprobs,
                        finish_reason=delta.finish_reason,
                        stop_reason=None if delta.stop_reason is None else str(delta.stop_reason),
                    )
            usage = public.Usage(
                len(generation.prompt_token_ids), generation.num_output_tokens, generation.num_cached_tokens
            )
            yield public.Chunk(
                request_id=label, usage=usage, system_fingerprint=generation.fingerprint, kv_path=generation.kv_path
            )
        finally:
            generation.close()
