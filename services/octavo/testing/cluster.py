"""`Cluster`: router, workers and gateway as real processes on free ports, for tests and experiments.

    with Cluster(model_folder, workers=2) as cluster:
        httpx.get(cluster.base_url + "/v1/models")

Every service runs in a session of its own; leaving the context ends them in order, checks their exit codes, and checks
that no process remains.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import msgspec

from octavo.rpc.placement import WorkerStatus
from octavo.rpc.worker import WorkerClient
from octavo.testing import sim
from octavo.testing.service_process import ServiceProcess

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 15.0
QUIET_ENV = {"OMP_NUM_THREADS": "1", "OCTAVO_LOG_FORMAT": "text"}


class Cluster:
    """A running cluster.  `simulated` replaces the engines by simulated ones (no torch, chosen speed).

    `flags` go to every command that starts an engine or reads the model; `gateway_flags` and `worker_flags` to these
    only.  `env` is added to every service's environment, `gateway_env` and `worker_env` to these only (fault points).
    """

    def __init__(
        self,
        model: Path | str,
        *,
        workers: int = 1,
        simulated: sim.SimSpec | None = None,
        served_model_name: str = "tiny",
        router_flags: Sequence[str] = (),
        gateway_flags: Sequence[str] = (),
        worker_flags: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        gateway_env: Mapping[str, str] | None = None,
        worker_env: Mapping[str, str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self.model_name = served_model_name
        self._model = [str(model), "--served-model-name", served_model_name]
        self._num_workers = workers
        self._flags = {"router": list(router_flags), "gateway": list(gateway_flags), "worker": list(worker_flags)}
        simulating = {} if simulated is None else _simulate(simulated)
        common = {**QUIET_ENV, **(env or {})}
        self._env: dict[str, dict[str, str]] = {
            "router": common,
            "gateway": common | dict(gateway_env or {}),
            "worker": common | simulating | dict(worker_env or {}),
        }
        self._start_timeout_s = start_timeout_s
        self._folder = Path(tempfile.mkdtemp(prefix="octavo-cluster-"))
        self._killed: set[str] = set()
        self.services: dict[str, ServiceProcess] = {}

    # --- starting and ending --------------------------------------------------------------------------------

    def __enter__(self) -> Cluster:
        try:
            self.start_router()
            for index in range(self._num_workers):
                self.start_worker(index)
            self.start_gateway()
            for service in self.services.values():
                service.wait_ready(self._start_timeout_s)
            # A gateway is ready with the first worker; tests want all of them.
            self._wait_for("ready", lambda all_: all(s.is_ready for s in all_), self._start_timeout_s)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        problems = self._stop_all()
        logs = "\n".join(service.tail() for service in self.services.values()) if problems or error else ""
        self._end()
        if logs:
            print(logs)
        if problems and error is None:
            raise AssertionError("; ".join(problems))

    def start_router(self) -> ServiceProcess:
        router = self._start("router", "router", [])
        router.wait_listening(self._start_timeout_s)
        return router

    def start_worker(self, index: int) -> ServiceProcess:
        label = f"worker-{index}"
        return self._start(label, "worker", [*self._model, "--router", self.router_address, "--worker-id", label])

    def start_gateway(self, label: str = "gateway") -> ServiceProcess:
        ports = ["--port", "0", "--grpc-port", "0"]
        return self._start(label, "gateway", [*self._model, "--router", self.router_address, *ports])

    def kill(self, label: str) -> None:
        """SIGKILL a service's own process; its children must end by themselves."""
        self._killed.add(label)
        self.services[label].send(signal.SIGKILL)
        self.services[label].wait(STOP_TIMEOUT_S)

    def stop(self, label: str, number: signal.Signals = signal.SIGTERM) -> int:
        """Signal a service and return its exit code."""
        self.services[label].send(number)
        return self.services[label].wait(STOP_TIMEOUT_S)

    # --- where it is and how it is --------------------------------------------------------------------------

    @property
    def router_address(self) -> str:
        return self.services["router"].addresses["grpc"]

    @property
    def base_url(self) -> str:
        return "http://" + self.services["gateway"].addresses["http"]

    @property
    def grpc_address(self) -> str:
        return self.services["gateway"].addresses["grpc"]

    @property
    def workers(self) -> list[ServiceProcess]:
        return [service for label, service in self.services.items() if label.startswith("worker-")]

    def statuses(self) -> list[WorkerStatus]:
        """GetStatus of every live worker."""
        addresses = [worker.addresses["grpc"] for worker in self.workers if worker.is_alive]
        # In a thread, so that it works inside a running loop too.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: asyncio.run(_statuses(addresses))).result()

    def wait_idle(self, timeout_s: float = 10.0) -> list[WorkerStatus]:
        """Wait until no request lives and every block is free; raises `AssertionError` with the statuses otherwise."""
        return self._wait_for(
            "idle",
            lambda all_: all(s.num_live_requests == 0 and s.num_free_blocks == s.num_blocks for s in all_),
            timeout_s,
        )

    def wait_live(self, num_requests: int, timeout_s: float = 10.0) -> list[WorkerStatus]:
        """Wait until the workers have at least so many live requests."""
        what = f"running {num_requests} requests"
        return self._wait_for(what, lambda all_: sum(s.num_live_requests for s in all_) >= num_requests, timeout_s)

    def _wait_for(
        self, what: str, condition: Callable[[list[WorkerStatus]], bool], timeout_s: float
    ) -> list[WorkerStatus]:
        end_s = time.monotonic() + timeout_s
        while not condition(statuses := self.statuses()):
            if time.monotonic() > end_s:
                raise AssertionError(f"not {what} after {timeout_s:g} s: {statuses}")
            time.sleep(0.05)
        return statuses

    def _start(self, label: str, command: str, arguments: list[str]) -> ServiceProcess:
        log_path = self._folder / f"{label}.log"
        line = [command, *arguments, *self._flags[command]]
        self.services[label] = ServiceProcess(label, line, self._env[command], log_path)
        return self.services[label]

    def _stop_all(self) -> list[str]:
        problems = []
        order = sorted(self.services.items(), key=lambda item: item[0].startswith(("worker", "router")))
        for label, service in order:
            if label not in self._killed and service.is_alive:
                service.send(signal.SIGTERM)
        for label, service in order:
            if label in self._killed:
                continue
            try:
                code = service.wait(STOP_TIMEOUT_S)
            except Exception as error:
                problems.append(f"{label} did not end: {error}")
            else:
                if code != 0:
                    problems.append(f"{label} exited with {code}")
        for label, service in order:
            left = service.wait_gone(5.0)
            if left:
                problems.append(f"of {label} remains: {left}")
        return problems

    def _end(self) -> None:
        for service in self.services.values():
            service.end()
        if "OCTAVO_KEEP_LOGS" not in os.environ:
            shutil.rmtree(self._folder, ignore_errors=True)


async def _statuses(addresses: list[str]) -> list[WorkerStatus]:
    async def one(address: str) -> WorkerStatus:
        client = WorkerClient(address)
        try:
            return await client.status()
        finally:
            await client.close()

    return list(await asyncio.gather(*map(one, addresses)))


def _simulate(spec: sim.SimSpec) -> dict[str, str]:
    return {"OCTAVO_ENGINE_BUILDER": sim.BUILDER, sim.SIM_ENV: msgspec.json.encode(spec).decode()}
