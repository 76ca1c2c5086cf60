"""`Front`: one life of a worker's front process, put together."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time

import msgspec

from octavo.config.command import WorkerService
from octavo.errors import InternalError
from octavo.kv.record import WorkerRecord
from octavo.lifecycle import StopSignal
from octavo.obs.http import Answer, ProbeServer, text
from octavo.obs.notify import Notifier
from octavo.rpc.placement import ProbeResult, ServerInfo, WorkerStatus
from octavo.rpc.server import GrpcServer
from octavo.rpc.worker import SessionStream, add_worker
from octavo.version import __version__
from octavo.wire.load import LoadPublisher
from octavo.wire.message import LoadReport, PhaseNotice, StepDone
from octavo.wire.token_path import TokenServer
from octavo.worker.engine_link import EngineLink
from octavo.worker.metrics import WorkerMetrics
from octavo.worker.registration import Registration
from octavo.worker.service import FrontService

logger = logging.getLogger(__name__)

UPKEEP_EVERY_S = 0.25
LOAD_MIN_S = 0.05
DRAIN_POLL_S = 0.05
DRAIN_S = 30.0


class Front:
    """Implements `octavo.rpc.worker.WorkerApi`.  `serve` runs it to its end."""

    def __init__(self, config: WorkerService, info_json: str, notifier: Notifier) -> None:
        self._config, self._info_json, self._notifier = config, info_json, notifier
        settings = config.worker
        host = settings.worker_host
        loop = asyncio.get_running_loop()
        self._server = GrpcServer(host, settings.worker_port)
        self._http = ProbeServer(
            host,
            settings.worker_metrics_port,
            {"/health": self._health, "/ready": self._readiness, "/metrics": self._render_metrics},
        )
        ip = socket.gethostbyname(host)
        self._tokens = TokenServer(
            ip,
            lambda token, session_id: loop.call_soon_threadsafe(self._path_hello, token, session_id),
            lambda token: loop.call_soon_threadsafe(self._path_blocked, token, True),
            lambda token: loop.call_soon_threadsafe(self._path_blocked, token, False),
        )
        self._load = LoadPublisher(ip)
        self._load_number = 0
        self._published: tuple[object, ...] = ()
        self._published_s = 0.0
        self._registration: Registration | None = None
        self._metrics = WorkerMetrics(_served_name(config), settings.worker_id)
        self._is_serving = False

    @property
    def address(self) -> str:
        """`host:port` of the gRPC server, once it listens."""
        return self._server.address

    @property
    def http_address(self) -> str:
        return self._http.address

    @property
    def record(self) -> WorkerRecord | None:
        """The record that routers get, once the engine is ready."""
        return self._record()

    @property
    def is_joined(self) -> bool:
        """Whether the engine became ready and the worker began to register."""
        return self._registration is not None

    async def serve(self, stop: StopSignal) -> int:
        """Load, register, run; returns the exit code: 0 after a stop, 1 when the engine ended by itself."""
        settings = self._config.worker
        http_address = await self._http.start()
        add_worker(self._server, self)
        self._engine = EngineLink(self._config, self._on_step, self._on_phase)
        self.service = FrontService(
            settings.worker_id,
            secrets.token_hex(8),
            self._engine,
            self._tokens,
            session_lease_s=settings.session_lease_s,
            ready_limit_s=settings.ready_limit_s,
            max_num_waiting=self._config.scheduler.max_num_waiting,
        )
        try:
            grpc_address = await self._server.start()
            self.service.worker_id = settings.worker_id or grpc_address
            self._metrics = WorkerMetrics(_served_name(self._config), self.service.worker_id)
            logger.info("worker %s listens on %s (HTTP %s)", self.service.worker_id, grpc_address, http_address)
            self._notifier.listening(grpc=grpc_address, http=http_address)
            return await self._run(stop)
        finally:
            await self._close()

    async def _run(self, stop: StopSignal) -> int:
        stopped = asyncio.create_task(stop.wait(), name="stop")
        upkeep = asyncio.create_task(self._upkeep(), name="upkeep")
        exited = asyncio.create_task(self._engine.exited.wait(), name="engine-exit")
        ready = asyncio.create_task(self._engine.ready.wait(), name="engine-ready")
        tasks = {stopped, upkeep, exited}
        try:
            await asyncio.wait({*tasks, ready}, return_when=asyncio.FIRST_COMPLETED)
            if ready.done() and not stopped.done():
                await self._join()
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if stopped.done():
                await self._drain(stop)
                return 0
            reason = self._failure(upkeep)
            logger.error("this incarnation ends: %s", reason)
            self._notifier.failed(reason)
            return 1
        finally:
            for task in (*tasks, ready):
                task.cancel()
            await asyncio.gather(*tasks, ready, return_exceptions=True)

    def _failure(self, upkeep: asyncio.Task[None]) -> str:
        if upkeep.done() and (error := upkeep.exception()) is not None:
            return error.message if isinstance(error, InternalError) else f"{type(error).__name__}: {error}"
        return self._engine.fault or f"the engine process ended with code {self._engine.exit_code}"

    async def _join(self) -> None:
        """The engine is ready: complete the record, register, take requests."""
        record = self._record()
        assert record is not None
        self._engine.record = record
        routers = self._config.fleet.router
        self._registration = Registration(routers, record, lambda: self.service.is_ready, self._notifier.ready)
        self._registration.start()
        await self._set_serving(True)
        logger.info("worker %s is ready: %s, %d blocks", record.worker_id, record.served_names[0], record.num_blocks)

    def _record(self) -> WorkerRecord | None:
        record = self._engine.record
        if record is None:
            return None
        return msgspec.structs.replace(
            record,
            worker_id=self.service.worker_id,
            incarnation=self.service.incarnation,
            role=self._config.worker.role,
            grpc_address=self._server.address,
            load_address=self._load.address,
        )

    async def _drain(self, stop: StopSignal) -> None:
        """Leave the fleet, refuse what is new, let what runs end."""
        self.service.is_draining = True
        await self._set_serving(False)
        if self._registration is not None:
            await self._registration.leave()
        end_s = time.monotonic() + DRAIN_S
        while self.service.requests.num_live and time.monotonic() < end_s:
            if stop.is_urgent or self._engine.exited.is_set():
                break
            await asyncio.sleep(DRAIN_POLL_S)
        if self.service.requests.num_live:
            logger.warning("%d requests aborted by the shutdown", self.service.requests.num_live)
            self.service.abort_all()

    async def _close(self) -> None:
        await self._engine.close()
        self._tokens.close()
        await self._server.stop(0.2)
        await self._http.close()
        self._load.close()

    # --- upkeep ---

    async def _upkeep(self) -> None:
        """Leases, readiness, load reports; ends with an error when the engine is no longer live."""
        settings = self._config.worker
        while True:
            self.service.sweep()
            await self._set_serving(self.service.is_ready)
            if not self._engine.exited.is_set() and not self._engine.is_live(settings.live_limit_s):
                phase, age_s = self._engine.phase, self._engine.age_s()
                raise InternalError(f"the engine is stuck in phase {phase}: last heartbeat {age_s:.0f} s ago")
            self._publish(time.monotonic())
            await asyncio.sleep(UPKEEP_EVERY_S)

    def _load_state(self) -> tuple[object, ...]:
        stats = self._engine.stats
        return (self.service.is_ready, stats.num_running, stats.num_waiting, self.service.requests.num_live)

    def _publish(self, now_s: float) -> None:
        """Send a load report: every `UPKEEP_EVERY_S`, and sooner after a step that changed something."""
        if self._engine.record is None:
            return
        self._published, self._published_s = self._load_state(), now_s
        self._load_number += 1
        self._load.publish(
            LoadReport(
                self.service.worker_id,
                self.service.incarnation,
                self._load_number,
                self.service.is_ready,
                self._engine.stats,
                self.service.requests.live_keys(),
            )
        )

    async def _set_serving(self, is_serving: bool) -> None:
        if is_serving != self._is_serving:
            self._is_serving = is_serving
            logger.info("readiness is %s", "up" if is_serving else "down")
            await self._server.set_serving(is_serving)

    def _on_step(self, step: StepDone) -> None:
        self.service.on_step(step)
        self._metrics.take(step.stats)
        now_s = time.monotonic()
        if now_s - self._published_s >= LOAD_MIN_S and self._load_state() != self._published:
            self._publish(now_s)

    def _path_hello(self, token: bytes, session_id: str) -> None:
        self.service.on_path_hello(token, session_id)

    def _path_blocked(self, token: bytes, is_blocked: bool) -> None:
        self.service.on_path_blocked(token, is_blocked)

    def _on_phase(self, notice: PhaseNotice) -> None:
        self._notifier.progress(notice.name, notice.progress, notice.detail)

    # --- Worker calls ---

    async def session(self, stream: SessionStream) -> None:
        await self.service.session(stream)

    async def status(self) -> WorkerStatus:
        stats, engine = self._engine.stats, self._engine
        return WorkerStatus(
            worker_id=self.service.worker_id,
            incarnation=self.service.incarnation,
            phase="draining" if self.service.is_draining else engine.phase,
            progress=engine.progress,
            detail=engine.detail or engine.fault,
            is_ready=self.service.is_ready,
            is_live=self._is_live(),
            engine_age_s=engine.age_s(),
            num_running=stats.num_running,
            num_waiting=stats.num_waiting,
            num_blocks=stats.num_blocks,
            num_free_blocks=stats.num_free_blocks,
            num_sessions=len(self.service.sessions),
            num_live_requests=self.service.requests.num_live,
            num_retained_requests=self.service.requests.num_retained,
            num_preemptions=stats.num_preemptions,
            record=self._record(),
        )

    async def probe(self) -> ProbeResult:
        is_live = self._engine.is_stepping(self._config.worker.ready_limit_s)
        return ProbeResult(self.service.incarnation, is_live, self._engine.age_s())

    async def info(self) -> ServerInfo:
        return ServerInfo("worker", __version__, self._info_json)

    # --- HTTP ---

    def _is_live(self) -> bool:
        return self._engine.is_live(self._config.worker.live_limit_s)

    def _health(self) -> Answer:
        return text(200, "ok\n") if self._is_live() else text(503, "the engine does not step\n")

    def _readiness(self) -> Answer:
        if self.service.is_ready:
            return text(200, "ok\n")
        return text(503, f"not ready: phase {self._engine.phase}, engine heartbeat {self._engine.age_s():.1f} s old\n")

    def _render_metrics(self) -> Answer:
        metrics = self._metrics
        metrics.sessions.set(len(self.service.sessions))
        metrics.live.set(self.service.requests.num_live)
        metrics.engine_age_s.set(self._engine.age_s())
        metrics.set_frames(self._tokens.num_frames, self._tokens.num_unreachable, self.service.num_resends)
        return metrics.render()


def _served_name(config: WorkerService) -> str:
    """The name of the model in metrics: the one that clients use, as at the gateway."""
    return (*config.model.served_model_name, config.model.model)[0]
