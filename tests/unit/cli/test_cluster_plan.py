"""What `octavo up` would start: settings, threads, memory, GPUs and ports of each service."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from octavo.cli.backoff import Backoff
from octavo.cli.cluster import ClusterPlan, Machine, child_env, fixed_ports, plan_cluster
from octavo.cli.host import check_port, has_gpu, quota_cores, visible_gpus
from octavo.config.command import ClusterService, GatewayService, RouterService, WorkerService
from octavo.config.resolve import resolve
from octavo.errors import Unavailable

GIB = 2**30
COMMANDS = {"router": RouterService, "worker": WorkerService, "gateway": GatewayService}


def plan(*argv: str, machine: Machine | None = None) -> ClusterPlan:
    resolved = resolve(ClusterService, ["m", *argv])
    return plan_cluster(resolved.checked(), machine or Machine(8, 16 * GIB), resolved.info_json())


def test_each_command_line_names_its_role_and_yields_its_settings() -> None:
    made = plan("--workers", "2", "--max-num-seqs", "5", "--router-port", "7000", "--host", "0.0.0.0")
    for service in made.services:
        named = service if service.role == "router" else service.with_router("127.0.0.1:7000")
        command = named.command()
        assert command[1:4] == ["-m", "octavo.cli", service.role]
        again = resolve(COMMANDS[service.role], command[4:])
        assert again.checked() == named.config
    assert [s.name for s in made.services] == ["router", "worker 0", "worker 1", "gateway"]
    assert made.gateway.config.gateway.host == "0.0.0.0"
    assert json.loads(made.gateway.env["OCTAVO_UP_CONFIG"])["max_num_seqs"] == 5


@pytest.mark.parametrize(("workers", "cores", "threads"), [(1, 2, 2), (2, 2, 1), (3, 2, 1), (3, 8, 2)])
def test_workers_share_the_cores(workers: int, cores: int, threads: int) -> None:
    made = plan("--workers", str(workers), machine=Machine(cores, GIB))
    for worker in made.workers:
        assert worker.config.device.threads == threads
        assert worker.env["OMP_NUM_THREADS"] == str(threads)
    assert made.gateway.env["OMP_NUM_THREADS"] == "1"


def test_given_threads_count_for_each_worker() -> None:
    assert [w.config.device.threads for w in plan("--workers", "2", "--threads", "3").workers] == [3, 3]


@pytest.mark.parametrize(
    ("argv", "free", "expected"),
    [
        (["--workers", "1"], 16 * GIB, 0),
        (["--workers", "2"], 16 * GIB, 2 * GIB),
        (["--workers", "2"], 100 * GIB, 4 * GIB),
        (["--workers", "2", "--kv-cache-memory-bytes", "1GiB"], 16 * GIB, GIB),
        (["--workers", "2", "--num-gpu-blocks-override", "9"], 16 * GIB, 0),
        (["--workers", "2", "--device", "cuda"], 16 * GIB, 0),
    ],
)
def test_workers_share_the_memory_on_cpu(argv: list[str], free: int, expected: int) -> None:
    made = plan(*argv, machine=Machine(8, free))
    assert {w.config.cache.kv_cache_memory_bytes for w in made.workers} == {expected}


def test_workers_get_a_gpu_each() -> None:
    machine = Machine(8, GIB, gpus=("0", "3"), has_gpu=True)
    assert [w.env.get("CUDA_VISIBLE_DEVICES") for w in plan("--workers", "2", machine=machine).workers] == ["0", "3"]
    assert "CUDA_VISIBLE_DEVICES" not in plan("--workers", "2", "--device", "cpu", machine=machine).workers[0].env
    assert "CUDA_VISIBLE_DEVICES" not in plan(machine=machine).workers[0].env


def test_ports_and_ids_count_up() -> None:
    made = plan("--workers", "2", "--worker-port", "5000", "--worker-id", "w")
    assert [(w.config.worker.worker_port, w.config.worker.worker_id) for w in made.workers] == [
        (5000, "w-0"),
        (5001, "w-1"),
    ]
    assert plan("--worker-id", "w").workers[0].config.worker.worker_id == "w"
    assert [(port, name) for _, port, name in fixed_ports(made)] == [
        (5000, "worker_port"),
        (5001, "worker_port"),
        (8000, "port"),
        (8001, "grpc_port"),
    ]
    assert fixed_ports(plan("--port", "0")) == []


def test_a_new_life_listens_where_the_old_one_did() -> None:
    again = plan("--port", "0").gateway.at({"grpc": "127.0.0.1:41", "http": "[::1]:42", "other": "x"})
    assert (again.config.gateway.grpc_port, again.config.gateway.port) == (41, 42)
    assert plan().router.at({}) == plan().router


def test_services_do_not_see_the_settings_of_the_environment() -> None:
    assert child_env({"OCTAVO_PORT": "1", "OCTAVO_CACHE": "/c", "PATH": "/bin"}, {"OCTAVO_PORT"}) == {
        "OCTAVO_CACHE": "/c",
        "PATH": "/bin",
    }


def test_backoff_doubles_to_a_limit_and_forgives() -> None:
    backoff = Backoff()
    assert [backoff.after_death(1.0) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert backoff.after_death(61.0) == 0.5


def test_gpus_are_found_without_torch(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert visible_gpus({}, tmp_path) == ["0", "2", "10"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "1,GPU-5"}, tmp_path) == ["1", "GPU-5"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == []
    assert has_gpu({}, tmp_path)
    assert not has_gpu({}, tmp_path / "none")


@pytest.mark.parametrize(("text", "cores"), [("150000 100000", 1), ("400000 100000", 4), ("max 100000", 0), ("x", 0)])
def test_cpu_quota(text: str, cores: int, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert quota_cores(tmp_path / "cpu.max") == cores
    assert quota_cores(tmp_path / "none") == 0


def test_a_taken_port_is_named_with_its_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(Unavailable, match=rf"grpc_port: got {port}; the port is in use.*--grpc-port"):
            check_port("127.0.0.1", port, "grpc_port")
    check_port("127.0.0.1", port, "grpc_port")
    check_port("127.0.0.1", 0, "port")
    with pytest.raises(Unavailable, match="cannot listen on"):
        check_port("203.0.113.7", 4000, "port")
