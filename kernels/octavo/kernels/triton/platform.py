"""Whether Triton kernels can run here, and the sizes that their launches need."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from importlib.util import find_spec

import torch


@cache
def is_installed() -> bool:
    """Whether the triton package is there."""
    return find_spec("triton") is not None


@cache
def triton_version() -> str:
    """The version of the triton package, which compiles the kernels here; empty without it."""
    return version("triton") if is_installed() else ""


@cache
def num_processors(device: torch.device) -> int:
    """Multiprocessors of a GPU; a few where kernels are interpreted on the host."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


@cache
def chaining(device: torch.device) -> dict[str, bool]:
    """Launch arguments by which a kernel starts while the one before it ends, where the GPU can (Hopper on).

    Such a kernel waits before it reads or writes memory that others write, so the order of effects stays.
    """
    can = device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) >= (9, 0)
    return {"IS_CHAINED": True, "launch_pdl": True} if can else {"IS_CHAINED": False}


def next_power_of_2(n: int) -> int:
    """The smallest power of 2 that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()


def runs_triton(x: torch.Tensor) -> bool:
    """Whether an op on `x` takes its Triton kernel."""
    return x.is_cuda and is_installed()
