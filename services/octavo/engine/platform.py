"""Which device an engine computes on, in which precision, with how many threads."""

from __future__ import annotations

import os

import torch

from octavo.config.engine import DeviceConfig
from octavo.errors import InvalidInput, Problem, show
from octavo.obs.log import get_logger

log = get_logger(__name__)

TORCH_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def available_platforms() -> list[str]:
    """Platforms that can run here, the preferred first."""
    found = []
    if torch.cuda.is_available():
        found.append("rocm" if torch.version.hip else "cuda")
    return [*found, "cpu"]


def detect_platform(wanted: str = "auto") -> str:
    """`wanted`, or with `auto` the first available.  Raises `InvalidInput` for one that is not there."""
    found = available_platforms()
    if wanted == "auto":
        if found[0] == "cpu":
            log.info("no GPU found: using the CPU")
        else:
            log.info(f"using {found[0]}", device=torch.cuda.get_device_name(0))
        return found[0]
    if wanted not in found:
        raise InvalidInput.of([Problem("device", show(wanted), f"this machine has: {', '.join(found)}")])
    return wanted


def torch_device(platform: str, index: int = 0) -> torch.device:
    """The torch device of a platform (ROCm goes by torch's name for CUDA)."""
    return torch.device("cpu") if platform == "cpu" else torch.device("cuda", index)


def has_fast_bfloat16(platform: str) -> bool:
    """Whether matrix products in bfloat16 run in hardware."""
    if platform != "cpu":
        return torch.cuda.is_bf16_supported()
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in checks)


def resolve_dtype(name: str, platform: str, field: str = "dtype") -> str:
    """`float32`, `bfloat16` or `float16` for a setting; auto is bfloat16 where the device has it, else float32."""
    if name == "auto":
        return "bfloat16" if has_fast_bfloat16(platform) else "float32"
    if name not in TORCH_DTYPES:
        raise InvalidInput.of([Problem(field, show(name), f"must be auto or one of {tuple(TORCH_DTYPES)}")])
    return name


def num_threads(config: DeviceConfig, num_engines: int = 1) -> int:
    """Compute threads of one engine on CPU: as set, else what the environment says, else cores ÷ engines."""
    if config.threads:
        return config.threads
    if os.environ.get("OMP_NUM_THREADS", "").isdigit():
        return max(1, int(os.environ["OMP_NUM_THREADS"]))
    return max(1, len(os.sched_getaffinity(0)) // num_engines)


def instruction_set(platform: str) -> str:
    """What the bits of a matrix product depend on in the device: vector extensions, or the GPU's generation."""
    if platform != "cpu":
        return "sm" + "".join(map(str, torch.cuda.get_device_capability()))
    extensions = [
        name.removeprefix("_is_").removesuffix("_supported")
        for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported", "_is_vnni_supported")
        if getattr(torch.cpu, name, lambda: False)()
    ]
    return "+".join([torch.backends.cpu.get_cpu_capability().lower(), *extensions])
