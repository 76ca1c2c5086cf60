"""Test doubles for the gateway: routers and a worker session that speak its interfaces without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from octavo.config.service import GatewayConfig
from octavo.errors import OctavoError, Unavailable
from octavo.gateway.edge_model import EdgeModel
from octavo.gateway.frontend import Frontend
from octavo.gateway.link import LinkListener
from octavo.gateway.placement import Routers
from octavo.hub.files import ModelFiles
from octavo.hub.generation import GenerationDefaults
from octavo.kv.layout import GroupSpec, KVLayout
from octavo.kv.record import WorkerRecord
from octavo.request import Emission, Request, TokenLogprobs
from octavo.rpc.placement import Fleet, FleetMember, Leg, Placement, PlaceRequest, ServerInfo

TEXT = "Grüße, 世界! 😀 The end."
VOCAB_SIZE = 512
MAX_LEN = 256


def make_record(worker_id: str = "w0", incarnation: str = "i0") -> WorkerRecord:
    layout = KVLayout(16, 1, 1, "float32", (GroupSpec(0, "full", (0,)),))
    return WorkerRecord(
        worker_id=worker_id,
        incarnation=incarnation,
        role="both",
        model="tiny",
        served_names=("tiny",),
        content_id="c",
        model_revision="r",
        layout=layout,
        numerics="fp-1",
        algorithms=(),
        max_sequence_tokens=MAX_LEN,
        vocab_size=VOCAB_SIZE,
        num_blocks=64,
        max_num_seqs=8,
        device="cpu",
    )


class FakeRouter:
    """Places on the first of `records` that is not excluded; the others are spares."""

    def __init__(self, records: Sequence[WorkerRecord], address: str = "r0") -> None:
        self.address = address
        self.records = list(records)
        self.asked: list[PlaceRequest] = []
        self.error: OctavoError | None = None
        self.num_spares = 8

    async def place(self, request: PlaceRequest) -> Placement:
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        legs = [Leg(r) for r in self.records if r.worker_id not in request.exclude]
        if not legs:
            raise Unavailable("no worker serves the model")
        return Placement(path="local", decode=legs[0], spares=tuple(legs[1 : 1 + self.num_spares]))

    async def fleet(self) -> Fleet:
        if self.error is not None:
            raise self.error
        return Fleet(tuple(FleetMember(record=r, is_ready=True, heartbeat_age_s=0.1) for r in self.records), 10.0)

    async def info(self) -> ServerInfo:
        return ServerInfo("router", "0", '{"routing_policy": "least_loaded"}')

    async def close(self) -> None:
        pass


class FakeLink:
    """A session whose worker puts out the bytes of `text` (token id = byte), one token per loop turn, for ever."""

    def __init__(self, record: WorkerRecord, listener: LinkListener, text: str = TEXT) -> None:
        self.record = record
        self.is_open = True
        self.listener = listener
        self.tokens = list(text.encode())
        self.submitted: list[Request] = []
        self.aborted: list[tuple[str, int, tuple[int, ...]]] = []
        self.resent: list[tuple[str, int, dict[int, int]]] = []
        self.paused: list[tuple[str, bool]] = []
        self.refusal: OctavoError | None = None
        self.mangle: Callable[[Emission], list[Emission]] = lambda emission: [emission]
        self.loses_after: int | None = None
        self._gates: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._sent: dict[str, list[Emission]] = {}

    @property
    def num_running(self) -> int:
        return sum(not task.done() for task in self._tasks.values())

    async def submit(self, request: Request) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.submitted.append(request)
        gate = self._gates[request.request_id] = asyncio.Event()
        gate.set()
        self._sent[request.request_id] = []
        self._tasks[request.request_id] = asyncio.create_task(self._generate(request, request.attempt))

    async def _generate(self, request: Request, attempt: int) -> None:
        params = request.params
        limit = params.max_tokens or MAX_LEN - len(request.prompt_token_ids)
        for index in range(limit):
            await self._gates[request.request_id].wait()
            await asyncio.sleep(0)
            if self.loses_after is not None and index >= self.loses_after:
                self.is_open = False
                self.listener.on_lost(self, "connection reset")
                return
            for sequence in range(params.n):
                token = self.tokens[(index + sequence) % len(self.tokens)]
                emission = Emission(request.request_id, attempt, sequence, index, [token])
                if params.logprobs is not None:
                    top = [token, (token + 1) % 256][: params.logprobs]
                    emission.logprobs = [TokenLogprobs(-0.25, 1, top, [-0.25, -2.0][: params.logprobs])]
                emission.num_cached_tokens = 16 if index == 0 else -1
                emission.finish_reason = "length" if index == limit - 1 else None
                self._sent[request.request_id].append(emission)
                self.listener.on_emissions(self, self.mangle(emission))

    def abort(self, request_id: str, attempt: int, sequences: Sequence[int] = ()) -> None:
        self.aborted.append((request_id, attempt, tuple(sequences)))
        if not sequences and request_id in self._tasks:
            self._tasks[request_id].cancel()

    def resend(self, request_id: str, attempt: int, from_index: dict[int, int]) -> None:
        self.resent.append((request_id, attempt, from_index))
        again = [e for e in self._sent[request_id] if e.index_from >= from_index.get(e.sequence, 1 << 30)]
        asyncio.get_running_loop().call_soon(self.listener.on_emissions, self, again)

    def pause(self, request_id: str, attempt: int, is_paused: bool) -> None:
        self.paused.append((request_id, is_paused))
        (self._gates[request_id].clear if is_paused else self._gates[request_id].set)()

    async def close(self) -> None:
        self.is_open = False
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


class FakeCluster:
    """A frontend over fake routers and links."""

    def __init__(self, files: ModelFiles, num_workers: int = 1, **settings: object) -> None:
        from octavo.text.tokenizer import load_tokenizer

        self.records = [make_record(f"w{i}") for i in range(num_workers)]
        self.router = FakeRouter(self.records)
        self.links: dict[str, FakeLink] = {}
        self.refusals: dict[str, OctavoError] = {}
        self.loses_after: int | None = None
        model = EdgeModel(files, load_tokenizer(files), GenerationDefaults(), ("tiny", "alias"))
        config = GatewayConfig(**settings)  # type: ignore[arg-type]  # settings of a test
        self.frontend = Frontend(config, model, Routers([self.router]), self._open, self._info, '{"port": 8000}')

    async def _open(self, record: WorkerRecord, listener: LinkListener) -> FakeLink:
        link = self.links[record.worker_id] = FakeLink(record, listener)
        link.loses_after = self.loses_after
        link.refusal = self.refusals.get(record.worker_id)
        return link

    async def _info(self, record: WorkerRecord) -> ServerInfo:
        return ServerInfo("worker", "0", f'{{"worker_id": "{record.worker_id}"}}')

    async def __aenter__(self) -> FakeCluster:
        await self.frontend.routers.refresh()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.frontend.close()
        self.frontend.check_integrity()

    @property
    def link(self) -> FakeLink:
        return self.links["w0"]
