"""What each command needs: settings composed by fields, so that every flag is described once."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.config.engine import CacheConfig, DeviceConfig, EngineConfig, ModelConfig, ParallelConfig, SchedulerConfig
from octavo.config.service import ClusterConfig, FleetConfig, GatewayConfig, LogConfig, RouterConfig, WorkerConfig


@dataclass(frozen=True)
class RouterService:
    """`octavo router`."""

    router: RouterConfig = field(default_factory=RouterConfig)
    log: LogConfig = field(default_factory=LogConfig)


@dataclass(frozen=True)
class GatewayService:
    """`octavo gateway`: the edge needs the model's tokenizer and template, never its weights."""

    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    fleet: FleetConfig = field(default_factory=FleetConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    log: LogConfig = field(default_factory=LogConfig)


@dataclass(frozen=True)
class WorkerService:
    """`octavo worker`: a front and an engine process."""

    worker: WorkerConfig = field(default_factory=WorkerConfig)
    fleet: FleetConfig = field(default_factory=FleetConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)
    log: LogConfig = field(default_factory=LogConfig)

    @property
    def engine(self) -> EngineConfig:
        return EngineConfig(self.model, self.cache, self.scheduler, self.parallel, self.device)


@dataclass(frozen=True)
class ClusterService:
    """`octavo up` and `octavo serve`: everything on one machine."""

    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    router: RouterConfig = field(default_factory=RouterConfig)
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)
    log: LogConfig = field(default_factory=LogConfig)
