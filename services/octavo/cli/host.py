"""What this machine has: cores, memory, GPUs, free ports; found without torch."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from octavo.errors import Unavailable


def num_cores() -> int:
    """Cores that this process may use: its affinity, and the CPU quota of its control group."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, quota_cores(Path("/sys/fs/cgroup/cpu.max")) or cores)


def quota_cores(cpu_max: Path) -> int:
    """Whole cores of a cgroup v2 quota (`"150000 100000"` → 1), at least 1; 0 where there is none."""
    try:
        quota, period = cpu_max.read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):
        return 0


def free_memory_bytes() -> int:
    import psutil

    return int(psutil.virtual_memory().available)


def visible_gpus(env: Mapping[str, str], dev: Path = Path("/dev")) -> list[str]:
    """The names by which CUDA_VISIBLE_DEVICES selects the NVIDIA GPUs of this machine."""
    if "CUDA_VISIBLE_DEVICES" in env:
        return [name for name in env["CUDA_VISIBLE_DEVICES"].split(",") if name]
    found = [match[1] for item in dev.glob("nvidia*") if (match := re.fullmatch(r"nvidia(\d+)", item.name))]
    return sorted(found, key=int)


def has_gpu(env: Mapping[str, str], dev: Path = Path("/dev")) -> bool:
    return bool(visible_gpus(env, dev)) or (dev / "kfd").exists()


def check_port(host: str, port: int, setting: str) -> None:
    """Raises `Unavailable` that names the port and its flag where nothing can listen there.  Port 0 always can."""
    if port <= 0:
        return
    flag = "--" + setting.replace("_", "-")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                reason = "the port is in use by another process"
            else:
                reason = f"cannot listen on {host}:{port}: {error.strerror or error}"
            raise Unavailable(f"{setting}: got {port}; {reason}; choose another with {flag}", param=setting) from None
