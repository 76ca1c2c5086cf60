"""Running the generations behind one HTTP request: one for chat, one per prompt for completions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from fastapi import Request

from octavo.gateway.frontend import Frontend
from octavo.gateway.generation import Generation
from octavo.gateway.http.answer import Octavo, PromptDetails, Usage
from octavo.gateway.http.connection import while_connected
from octavo.gateway.job import Job, OutputDelta

MAX_LABEL = 256
PARALLEL_STARTS = 32


class Run:
    """The started generations of one request.  `close` releases them all."""

    def __init__(self, generations: Sequence[Generation], label: str) -> None:
        self.generations = list(generations)
        self.label = label or self.id

    @property
    def id(self) -> str:
        return self.generations[0].request_id

    @property
    def headers(self) -> dict[str, str]:
        return {"x-request-id": self.label, "x-octavo-kv-path": self.generations[0].kv_path}

    def usage(self) -> Usage:
        prompt = sum(len(g.prompt_token_ids) for g in self.generations)
        output = sum(g.num_output_tokens for g in self.generations)
        cached = sum(g.num_cached_tokens for g in self.generations)
        return Usage(prompt, output, prompt + output, PromptDetails(cached))

    def octavo(self) -> Octavo:
        return Octavo(self.generations[0].kv_path)

    async def batches(self) -> AsyncIterator[tuple[int, list[OutputDelta]]]:
        """(generation index, deltas) of all generations as they come; raises the first error of any."""
        if len(self.generations) == 1:
            async for batch in self.generations[0].batches():
                yield 0, batch
            return
        queue: asyncio.Queue[tuple[int, list[OutputDelta]] | BaseExceptionGroup[Exception] | None]
        queue = asyncio.Queue(maxsize=1)

        async def pump(index: int, generation: Generation) -> None:
            async for batch in generation.batches():
                await queue.put((index, batch))

        async def pump_all() -> None:
            ending: BaseExceptionGroup[Exception] | None = None
            try:
                async with asyncio.TaskGroup() as group:
                    for index, generation in enumerate(self.generations):
                        group.create_task(pump(index, generation))
            except* Exception as errors:
                ending = errors
            await queue.put(ending)

        pumps = asyncio.ensure_future(pump_all())
        try:
            while isinstance(item := await queue.get(), tuple):
                yield item
            if item is not None:
                raise _first(item)
        finally:
            pumps.cancel()
            await asyncio.gather(pumps, return_exceptions=True)

    def close(self) -> None:
        for generation in self.generations:
            generation.close()


async def start(frontend: Frontend, request: Request, jobs: Sequence[Job], prefix: str) -> Run:
    """Start all jobs; returns when all were accepted and the first had its first event.

    When one fails, or the client goes, none remains.
    """
    label = request.headers.get("x-request-id", "")[:MAX_LABEL]
    label = label if label.isascii() and label.isprintable() else ""
    for job in jobs:
        job.label = label
    return await while_connected(request.receive, _start_all(frontend, jobs, prefix, label), Run.close)


async def _start_all(frontend: Frontend, jobs: Sequence[Job], prefix: str, label: str) -> Run:
    generations: list[Generation] = []
    slots = asyncio.Semaphore(PARALLEL_STARTS)

    async def place(generation: Generation) -> None:
        async with slots:
            await frontend.place(generation)

    try:
        # All are checked before the first one reaches a worker.
        for job in jobs:
            generations.append(await frontend.open(job, prefix))
        async with asyncio.TaskGroup() as group:
            for generation in generations:
                group.create_task(place(generation))
        # Only the first one's event is waited for: a worker may hold back those that nobody reads yet.
        await generations[0].prime()
    except BaseException as error:
        for generation in generations:
            generation.close()
        if isinstance(error, ExceptionGroup):
            raise _first(error) from None
        raise
    return Run(generations, label)


def _first(errors: BaseExceptionGroup[Exception]) -> Exception:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Exception)
    return error
