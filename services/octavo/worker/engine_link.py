"""`EngineLink`: starts the engine process, watches it, and carries commands and messages.

Front and engine are one incarnation: the engine dies with the front (parent-death signal, pipe), and the front is told
at once when the engine ends (`on_exit`).  Start it from the main thread: the death signal follows the starting thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable

from octavo.config.command import WorkerService
from octavo.engine.launch import EngineLaunch, encode
from octavo.heartbeat import BEAT_PERIOD_S, HeartbeatView
from octavo.kv.record import WorkerRecord
from octavo.wire.channel import FrontChannel
from octavo.wire.message import (
    EngineFault,
    EngineReady,
    EngineStats,
    FromEngine,
    PhaseNotice,
    Shutdown,
    StepDone,
    ToEngine,
)

logger = logging.getLogger(__name__)

BUILDER_ENV = "OCTAVO_ENGINE_BUILDER"
"""`module:function` of another engine builder, such as the simulated one; empty: the real engine."""
SHUTDOWN_S = 5.0


class EngineLink:
    """One engine process and what is known of it."""

    def __init__(
        self,
        config: WorkerService,
        on_step: Callable[[StepDone], None],
        on_phase: Callable[[PhaseNotice], None] = lambda notice: None,
    ) -> None:
        self.phase, self.progress, self.detail = "starting", 0.0, ""
        self.record: WorkerRecord | None = None
        self.fault = ""
        self.stats = EngineStats()
        self.ready = asyncio.Event()
        self.exited = asyncio.Event()
        self.exit_code: int | None = None
        self._config = config
        self._on_step, self._on_phase = on_step, on_phase
        self._heartbeat = HeartbeatView()
        self._folder = tempfile.mkdtemp(prefix="octavo-worker-")
        address = f"ipc://{self._folder}/engine"
        self._channel = FrontChannel(address, self._take)
        self._parent_read, self._parent_write = os.pipe()
        self._process = self._spawn(address)
        os.close(self._parent_read)
        self._pidfd = os.pidfd_open(self._process.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_exit)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, command: ToEngine) -> None:
        """Queue a command; one sent to an engine that has ended goes nowhere."""
        if not self.exited.is_set():
            self._channel.send(command)

    def age_s(self) -> float:
        """Seconds since the engine's last heartbeat."""
        return self._heartbeat.age_s()

    def is_stepping(self, limit_s: float) -> bool:
        """Whether the engine is ready and its heartbeat is late by less than `limit_s`.

        A beat may be `BEAT_PERIOD_S` old by right, so this turns false at least `limit_s` after the engine stopped.
        """
        return self.record is not None and not self.exited.is_set() and self.age_s() < limit_s + BEAT_PERIOD_S

    def is_live(self, limit_s: float) -> bool:
        """False when the engine ended, its declared phase is overdue, or a ready engine was silent for `limit_s`."""
        if self.exited.is_set() or self._heartbeat.is_overdue():
            return False
        return self.record is None or self.age_s() < limit_s

    async def close(self) -> None:
        """Ask the engine to end, kill it when it does not, and free everything."""
        if self.record is None:
            # It still loads and reads no commands; it holds nothing that must be given back.
            self._process.kill()
        self.send(Shutdown())
        try:
            await asyncio.wait_for(self.exited.wait(), SHUTDOWN_S)
        except TimeoutError:
            logger.warning("the engine did not end within %g s: killing it", SHUTDOWN_S)
            self._process.kill()
            await self.exited.wait()
        self._channel.close()
        self._heartbeat.close()
        os.close(self._parent_write)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _spawn(self, address: str) -> subprocess.Popen[bytes]:
        config = self._config
        launch = EngineLaunch(
            engine=config.engine,
            address=address,
            heartbeat_fd=self._heartbeat.fd,
            parent_fd=self._parent_read,
            parent_pid=os.getpid(),
            load_timeout_s=config.worker.load_timeout_s,
            builder=os.environ.get(BUILDER_ENV, ""),
            log_level=config.log.log_level,
            log_format=config.log.log_format,
        )
        config_fd = os.memfd_create("octavo-engine-config", os.MFD_CLOEXEC)
        try:
            os.write(config_fd, encode(launch))
            os.lseek(config_fd, 0, os.SEEK_SET)
            command = [sys.executable, "-m", "octavo.engine.process", "--config-fd", str(config_fd)]
            fds = (config_fd, self._heartbeat.fd, self._parent_read)
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=fds)
        finally:
            os.close(config_fd)

    def _on_exit(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.exit_code = self._process.wait()
        self.exited.set()

    def _take(self, message: FromEngine) -> None:
        if self._folder:
            # Connected: nothing needs the name any more, and a front that is killed leaves no file behind.
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""
        match message:
            case StepDone(stats=stats):
                self.stats = stats
                self._on_step(message)
            case PhaseNotice():
                self.phase, self.progress, self.detail = message.name, message.progress, message.detail
                self._on_phase(message)
            case EngineReady(record=record):
                self.phase, self.progress, self.detail = "ready", 1.0, ""
                self.record = record
                self.ready.set()
            case EngineFault(error=error):
                self.phase, self.fault = "failed", error.message
