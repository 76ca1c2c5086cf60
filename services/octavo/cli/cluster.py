"""What `octavo up` starts: the settings of each service, from those of the cluster.  Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from octavo.config.command import ClusterService, GatewayService, RouterService, WorkerService
from octavo.config.flat import secret_env, to_argv
from octavo.config.service import FleetConfig

MOST_KV_BYTES = 4 * 2**30
KV_SHARE = 4
"""On CPU the workers' pools take a quarter of the free memory together, at most 4 GiB each."""

PORTS = {
    "router": {"grpc": "router_port", "http": "router_metrics_port"},
    "worker": {"grpc": "worker_port", "http": "worker_metrics_port"},
    "gateway": {"http": "port", "grpc": "grpc_port"},
}
"""By role, the setting that holds the port of each address that a service announces."""


@dataclass(frozen=True)
class Machine:
    """What the plan divides: cores, bytes of free memory, and the names of the GPUs."""

    num_cores: int
    free_bytes: int
    gpus: tuple[str, ...] = ()
    has_gpu: bool = False


@dataclass(frozen=True)
class ServicePlan:
    """One service of the cluster: its name for people, its role (the command), its settings, extra environment."""

    name: str
    role: str
    config: Any
    env: Mapping[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        """The command line, which names the role."""
        return [sys.executable, "-m", "octavo.cli", self.role, *to_argv(self.config)]

    def environment(self) -> dict[str, str]:
        return {**self.env, **secret_env(self.config)}

    def with_router(self, address: str) -> ServicePlan:
        return replace(self, config=replace(self.config, fleet=FleetConfig(router=(address,))))

    def at(self, addresses: Mapping[str, str]) -> ServicePlan:
        """This plan on the ports that an earlier life announced, so that others find it again."""
        config = self.config
        for kind, setting in PORTS[self.role].items():
            port = addresses.get(kind, "").rpartition(":")[2]
            if port.isdigit():
                section = replace(getattr(config, self.role), **{setting: int(port)})
                config = replace(config, **{self.role: section})
        return replace(self, config=config)


@dataclass(frozen=True)
class ClusterPlan:
    router: ServicePlan
    workers: tuple[ServicePlan, ...]
    gateway: ServicePlan

    @property
    def services(self) -> tuple[ServicePlan, ...]:
        return (self.router, *self.workers, self.gateway)


def plan_cluster(config: ClusterService, machine: Machine, info_json: str) -> ClusterPlan:
    """The services of `config` on `machine`; `info_json` is what the gateway shows as the cluster's settings.

    N workers share the cores (`--threads`), on CPU the memory for KV, and the GPUs one each while there are enough.
    Worker i of several gets the given port + i and the given id followed by `-i`.
    """
    router = ServicePlan("router", "router", RouterService(config.router, config.log), {"OMP_NUM_THREADS": "1"})
    edge = GatewayService(config.gateway, FleetConfig(), config.model, config.log)
    gateway = ServicePlan("gateway", "gateway", edge, {"OMP_NUM_THREADS": "1", "OCTAVO_UP_CONFIG": info_json})
    workers = tuple(_plan_worker(config, machine, i) for i in range(config.cluster.workers))
    return ClusterPlan(router, workers, gateway)


def _plan_worker(config: ClusterService, machine: Machine, index: int) -> ServicePlan:
    num_workers = config.cluster.workers
    threads = config.device.threads or max(1, machine.num_cores // num_workers)
    cache, front = config.cache, config.worker
    is_on_cpu = config.device.device == "cpu" or (config.device.device == "auto" and not machine.has_gpu)
    if num_workers > 1:
        if is_on_cpu and not cache.kv_cache_memory_bytes and not cache.num_gpu_blocks_override:
            share = min(MOST_KV_BYTES, machine.free_bytes // KV_SHARE // num_workers)
            cache = replace(cache, kv_cache_memory_bytes=share)
        front = replace(
            front,
            worker_id=f"{front.worker_id}-{index}" if front.worker_id else "",
            worker_port=front.worker_port and front.worker_port + index,
            worker_metrics_port=front.worker_metrics_port and front.worker_metrics_port + index,
        )
    settings = WorkerService(
        worker=front,
        fleet=FleetConfig(),
        model=config.model,
        cache=cache,
        scheduler=config.scheduler,
        parallel=config.parallel,
        device=replace(config.device, threads=threads),
        log=config.log,
    )
    env = {"OMP_NUM_THREADS": str(threads)}
    if not is_on_cpu and 1 < num_workers <= len(machine.gpus):
        env["CUDA_VISIBLE_DEVICES"] = machine.gpus[index]
    return ServicePlan(f"worker {index}" if num_workers > 1 else "worker", "worker", settings, env)


def fixed_ports(plan: ClusterPlan) -> list[tuple[str, int, str]]:
    """(host, port, setting) of every port that was chosen by the user or by a default."""
    found: list[tuple[str, int, str]] = []
    hosts = {"router": "router_host", "worker": "worker_host", "gateway": "host"}
    for service in plan.services:
        section = getattr(service.config, service.role)
        host = getattr(section, hosts[service.role])
        for setting in PORTS[service.role].values():
            port = getattr(section, setting)
            if setting == "grpc_port" and port == -1:
                port = section.port + 1 if section.port else 0
            if port > 0:
                found.append((host, port, setting))
    return found


def child_env(env: Mapping[str, str], setting_names: set[str]) -> dict[str, str]:
    """`env` without the variables of settings: a service of the cluster gets those on its command line alone."""
    return {name: value for name, value in env.items() if name not in setting_names}
