"""`validate()`: everything that is wrong with a configuration, at once.  Pure: looks at values only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

from octavo.config.command import ClusterService, GatewayService, WorkerService
from octavo.config.engine import CacheConfig, EngineConfig, ModelConfig, ParallelConfig, SchedulerConfig
from octavo.config.service import FleetConfig, GatewayConfig, RouterConfig, WorkerConfig
from octavo.config.setting import check_range, settings_of
from octavo.errors import Problem, show

BLOCK_SIZES = (16, 32, 64, 128)
MODEL_HINT = "name a model: a demo name (octavo models), a Hugging Face id, a folder or a .gguf file"


def validate(config: object) -> list[Problem]:
    """All problems of a command's configuration (or of an `EngineConfig`): ranges, choices, and fields that do not go
    together.  Empty when it can be used."""
    problems: list[Problem] = []
    for setting in settings_of(type(config)):
        problem = check_range(setting, getattr(getattr(config, setting.group), setting.name))
        if problem is not None:
            problems.append(problem)
    sections = [getattr(config, item.name) for item in dataclasses.fields(config)]  # type: ignore[arg-type]
    for section in sections:
        check = CHECKS.get(type(section))
        if check is not None:
            problems += check(section)
    problems += _check_together(config)
    return problems


def _check_model(model: ModelConfig) -> Iterator[Problem]:
    if not model.model:
        yield Problem("model", show(model.model), MODEL_HINT)
    if model.trust_remote_code:
        yield Problem("trust_remote_code", "True", "must be off: Octavo runs no code that comes with a model")
    if any(not name for name in model.served_model_name):
        yield Problem("served_model_name", show(model.served_model_name), "names must not be empty")
    if model.rope_scaling:
        yield from _check_rope_scaling(model.rope_scaling)


def _check_rope_scaling(text: str) -> Iterator[Problem]:
    allowed = 'must be a JSON object with a rope_type, such as {"rope_type":"yarn","factor":4}'
    try:
        scaling: Any = json.loads(text)
    except ValueError:
        scaling = None
    if not isinstance(scaling, dict) or not ("rope_type" in scaling or "type" in scaling):
        yield Problem("rope_scaling", show(text), allowed)


def _check_cache(cache: CacheConfig) -> Iterator[Problem]:
    if cache.block_size not in (0, *BLOCK_SIZES):
        sizes = ", ".join(map(str, BLOCK_SIZES))
        yield Problem("block_size", show(cache.block_size), f"must be one of {sizes}, or 0 for the device's default")


def _check_parallel(parallel: ParallelConfig) -> Iterator[Problem]:
    reasons = {
        "tensor_parallel_size": "layers cannot be split over devices yet",
        "pipeline_parallel_size": "a model cannot be cut into stages yet",
        "data_parallel_size": "one worker runs one engine; for more engines start more workers (--workers)",
    }
    for name, reason in reasons.items():
        value = getattr(parallel, name)
        if value > 1:
            yield Problem(name, show(value), f"must be 1: {reason}")


def _check_gateway(gateway: GatewayConfig) -> Iterator[Problem]:
    if gateway.port > 0 and gateway.grpc_port == gateway.port:
        yield Problem("grpc_port", show(gateway.grpc_port), "must differ from port, which HTTP uses")
    if gateway.port == 65535 and gateway.grpc_port == -1:
        yield Problem("grpc_port", "-1", "must be given: the HTTP port + 1 would be 65536, which is no port")


def _check_router(router: RouterConfig) -> Iterator[Problem]:
    if router.router_port > 0 and router.router_metrics_port == router.router_port:
        yield Problem("router_metrics_port", show(router.router_metrics_port), "must differ from router_port")


def _check_worker(worker: WorkerConfig) -> Iterator[Problem]:
    if worker.worker_port > 0 and worker.worker_metrics_port == worker.worker_port:
        yield Problem("worker_metrics_port", show(worker.worker_metrics_port), "must differ from worker_port")
    if worker.live_limit_s < worker.ready_limit_s:
        yield Problem(
            "live_limit_s", show(worker.live_limit_s), f"must be at least ready_limit_s ({worker.ready_limit_s:g})"
        )


def _check_fleet(fleet: FleetConfig) -> Iterator[Problem]:
    for address in fleet.router:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            yield Problem("router", show(address), "must be host:port, such as 127.0.0.1:9000")


CHECKS: dict[type, Callable[[Any], Iterator[Problem]]] = {
    ModelConfig: _check_model,
    CacheConfig: _check_cache,
    ParallelConfig: _check_parallel,
    GatewayConfig: _check_gateway,
    RouterConfig: _check_router,
    WorkerConfig: _check_worker,
    FleetConfig: _check_fleet,
}


def _check_together(config: object) -> Iterator[Problem]:
    """Settings of different groups that do not go together."""
    if isinstance(config, GatewayService | WorkerService) and not config.fleet.router:
        yield Problem("router", "none", "give the address of at least one router as host:port")
    if isinstance(config, EngineConfig | WorkerService | ClusterService):
        yield from _check_budget(config.model, config.scheduler)
    if isinstance(config, ClusterService) and config.cluster.workers > 1:
        yield from _check_worker_ports(config)


def _check_budget(model: ModelConfig, scheduler: SchedulerConfig) -> Iterator[Problem]:
    budget = scheduler.max_num_batched_tokens
    if not scheduler.enable_chunked_prefill and 0 < budget < model.max_model_len:
        yield Problem(
            "max_num_batched_tokens",
            show(budget),
            f"must be at least max_model_len ({model.max_model_len}) where chunked prefill is off",
        )


def _check_worker_ports(config: ClusterService) -> Iterator[Problem]:
    """Worker i gets port + i: the ranges must not meet, nor leave the numbers of ports."""
    worker, num_workers = config.worker, config.cluster.workers
    for name, port in (("worker_port", worker.worker_port), ("worker_metrics_port", worker.worker_metrics_port)):
        if port and port + num_workers - 1 > 65535:
            yield Problem(name, show(port), f"must be at most {65536 - num_workers}: worker i gets this port + i")
    apart = abs(worker.worker_port - worker.worker_metrics_port)
    if worker.worker_port and worker.worker_metrics_port and 0 < apart < num_workers:
        yield Problem(
            "worker_metrics_port",
            show(worker.worker_metrics_port),
            f"must be at least {num_workers} away from worker_port: worker i gets this port + i",
        )
