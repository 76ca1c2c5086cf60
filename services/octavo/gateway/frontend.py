"""`Frontend`: the core service of a gateway; the HTTP and gRPC edges are thin layers over it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

from octavo.config.service import GatewayConfig
from octavo.errors import Aborted, DeadlineExceeded, InvalidInput, OctavoError, Problem, Unavailable, show
from octavo.gateway.dispatch import Dispatcher
from octavo.gateway.edge_model import EdgeModel
from octavo.gateway.generation import Generation
from octavo.gateway.job import Job, ModelCard
from octavo.gateway.link import LinkOpener, Links
from octavo.gateway.observe import GatewayMetrics
from octavo.gateway.placement import Routers
from octavo.gateway.stream import Stream
from octavo.gateway.streams import Streams
from octavo.kv.hash import chain_seed, extend_chain
from octavo.kv.record import WorkerRecord
from octavo.request import Request, SequenceInput
from octavo.rpc.placement import ServerInfo
from octavo.sampling_params import SamplingParams


class Frontend:
    """Turns jobs into running generations and answers questions about model and cluster.

    Every verb raises typed errors only.  A `Generation` that `start` returned must be closed by its reader.
    """

    def __init__(
        self,
        config: GatewayConfig,
        model: EdgeModel,
        routers: Routers,
        opener: LinkOpener,
        worker_info: Callable[[WorkerRecord], Awaitable[ServerInfo]],
        info_json: str = "{}",
    ) -> None:
        self.config = config
        self.model = model
        self.metrics = GatewayMetrics()
        self.incarnation = secrets.token_hex(8)
        self.routers = routers
        self.streams = Streams(config.max_stream_buffer_bytes)
        self.links = Links(opener, self.streams)
        self._dispatcher = Dispatcher(routers, self.links, self.streams, self.incarnation)
        self._worker_info = worker_info
        self._info_json = info_json
        self._labels: dict[str, list[Stream]] = {}
        self._started_unix_s = int(time.time())
        self.is_draining = False

    # --- about the model and the cluster -------------------------------------------------------------------------

    def models(self) -> list[ModelCard]:
        limit = self.model.max_model_len(self.routers.records)
        names = self.model.served_names
        return [ModelCard(name, names[0], limit, self._started_unix_s) for name in names]

    async def tokenize(self, model: str, text: str, add_special_tokens: bool = True) -> list[int]:
        self.model.check_name(model)
        return await self.model.encode(text, add_special_tokens=add_special_tokens)

    async def detokenize(self, model: str, token_ids: list[int], skip_special_tokens: bool = False) -> str:
        self.model.check_name(model)
        return self.model.decode(token_ids, skip_special_tokens, self.routers.records)

    async def is_ready(self) -> bool:
        """Whether a worker is ready to take requests, asking the routers when none is known."""
        if self.is_draining:
            return False
        return any(self._serves(r.served_names) for r in self.routers.records or await self.routers.refresh())

    async def server_info(self) -> dict[str, Any]:
        """The resolved configuration of every service of the cluster, as JSON values."""
        records = await self.routers.refresh()
        router = await _config_of(self.routers.info())
        infos = [_config_of(self._worker_info(record)) for record in records]
        return {
            "gateway": json.loads(self._info_json or "{}"),
            "cluster": json.loads(os.environ.get("OCTAVO_UP_CONFIG") or "null"),
            "router": router,
            "workers": list(await asyncio.gather(*infos)),
        }

    # --- generating -------------------------------------------------------------------------------------------------

    async def start(self, job: Job, prefix: str = "gen") -> Generation:
        """Open and place one job; returns after the first event of its worker.

        Whatever is wrong before that (bad input, no worker, a refusal) is raised here.  Cancelling this call aborts
        the request.
        """
        generation = await self.open(job, prefix)
        try:
            await self.place(generation)
            await generation.prime()
        except BaseException:
            generation.close()
            raise
        return generation

    async def open(self, job: Job, prefix: str = "gen") -> Generation:
        """A generation for a valid job, not yet placed; raises `InvalidInput` and the like.  The caller closes it."""
        if self.is_draining:
            raise Unavailable("the server is shutting down")
        name = self.model.check_name(job.model)
        params = self._params(job)
        token_ids = await self._prompt(job)
        room = self.model.max_model_len(self.routers.records) - len(token_ids)
        params = self.model.defaults.cap(params, room, is_given="max_tokens" in job.explicit)
        self.model.check(token_ids, params, self.routers.records, job.field)
        if params.seed is None:
            params = params.replace(seed=secrets.randbits(64))
        if not job.timeout_s >= 0:
            raise InvalidInput.of([Problem("timeout_s", show(job.timeout_s), "must be a number of seconds, 0 or more")])
        timeout_s = min(job.timeout_s or self.config.request_timeout_s, self.config.request_timeout_s)
        request = Request(
            request_id=f"{prefix}-{secrets.token_hex(12)}",
            attempt=0,
            prompt_token_ids=token_ids,
            params=params,
            sequences=[SequenceInput(index) for index in range(params.n)],
            namespace=hashlib.sha256(job.cache_salt.encode()).digest()[:16] if job.cache_salt else b"",
            priority=job.priority,
            deadline_unix_s=time.time() + timeout_s,
        )
        stream = self.streams.open(request)
        late = DeadlineExceeded(f"the request did not end within {timeout_s:g} s")
        timer = asyncio.get_running_loop().call_later(timeout_s, self.streams.fail, stream, late)
        labels = {request.request_id, job.label} - {""}
        for label in labels:
            self._labels.setdefault(label, []).append(stream)

        def release() -> None:
            timer.cancel()
            for label in labels:
                self._labels[label].remove(stream)
                if not self._labels[label]:
                    del self._labels[label]

        return Generation(self.streams, stream, self.model.tokenizer, self.metrics, name, release)

    async def place(self, generation: Generation) -> None:
        """Bring an opened generation to a worker; raises when none takes it.  The caller closes it in any case."""
        chain = self._chain(generation.request)
        placement, record = await self._dispatcher.dispatch(generation.stream, generation.model, chain)
        generation.record, generation.kv_path = record, placement.path

    def abort(self, label: str) -> bool:
        """End the live requests with this id or client label; returns whether there was one."""
        streams = list(self._labels.get(label, ()))
        for stream in streams:
            self.streams.fail(stream, Aborted("the client aborted the request"))
        return bool(streams)

    async def close(self) -> None:
        self.streams.fail_all(Unavailable("the server is shutting down"))
        await self.links.close()
        await self.routers.close()

    def check_integrity(self) -> None:
        self.streams.check_integrity()
        self.links.check_integrity()
        assert len(self.streams) or not self._labels, "labels of ended requests remain"

    async def _prompt(self, job: Job) -> list[int]:
        if job.token_ids is not None:
            return job.token_ids
        records = self.routers.records
        if job.messages is not None:
            text = self.model.render(job.messages, **job.template_options)
            return await self.model.encode(
                text, add_special_tokens=job.add_special_tokens, records=records, field=job.field
            )
        return await self.model.encode(
            job.text or "", add_special_tokens=job.add_special_tokens, records=records, field=job.field
        )

    def _params(self, job: Job) -> SamplingParams:
        params = self.model.defaults.apply(job.explicit)
        problems = [
            Problem(field, show(value), f"this server allows at most {limit}")
            for field, value, limit in (
                ("n", params.n, self.config.max_n),
                ("logprobs", params.logprobs or 0, self.config.max_logprobs),
            )
            if value > limit
        ]
        if problems:
            raise InvalidInput.of(problems)
        return params

    def _chain(self, request: Request) -> bytes:
        chain: list[bytes] = []
        seed = chain_seed(request.namespace, self.model.files.revision)
        extend_chain(chain, seed, request.prompt_token_ids)
        return b"".join(chain)

    def _serves(self, names: tuple[str, ...]) -> bool:
        return bool(set(names) & set(self.model.served_names))


async def _config_of(info: Awaitable[ServerInfo]) -> Any:
    """The configuration that a service tells, or an object that says why it does not."""
    try:
        return json.loads((await info).config_json or "{}")
    except OctavoError as error:
        return {"error": error.message}
