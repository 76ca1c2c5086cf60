"""How many KV blocks an engine has room for, and the pool itself."""

from __future__ import annotations

import psutil
import torch

from octavo.config.engine import CacheConfig
from octavo.errors import InvalidInput, Problem, show
from octavo.kernels.cpu import memory
from octavo.kv.layout import BLOCK_SIZES, KVLayout

CPU_POOL_LIMIT = 4 << 30
CPU_SHARE_OF_FREE = 4
DEFAULT_BLOCK_SIZE = {"cpu": 32}
GPU_BLOCK_SIZE = 64


def resolve_block_size(config: CacheConfig, platform: str) -> int:
    """The block size as set, or the platform's default.  Raises `InvalidInput` that names the legal ones."""
    size = config.block_size or DEFAULT_BLOCK_SIZE.get(platform, GPU_BLOCK_SIZE)
    if size not in BLOCK_SIZES:
        raise InvalidInput.of(
            [Problem("block_size", show(size), f"must be one of {BLOCK_SIZES}, or 0 for the default")]
        )
    return size


def pool_bytes(config: CacheConfig, device: torch.device, num_engines: int = 1, reserved_bytes: int = 0) -> int:
    """Bytes for the pool: as set; on CPU min(4 GiB, a quarter of free memory ÷ engines on this host); on a GPU what
    `gpu_memory_utilization` leaves beside what is allocated now, weights above all, and `reserved_bytes`."""
    if config.kv_cache_memory_bytes:
        return config.kv_cache_memory_bytes
    if device.type == "cpu":
        return min(CPU_POOL_LIMIT, psutil.virtual_memory().available // CPU_SHARE_OF_FREE // num_engines)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return int(free - total * (1 - config.gpu_memory_utilization)) - reserved_bytes


def count_blocks(
    config: CacheConfig, layout: KVLayout, num_bytes: int, *, max_num_seqs: int, max_model_len: int
) -> int:
    """Blocks in a pool of `num_bytes`, but no more than all sequences at full length need.

    Raises `InvalidInput` when not one block per group fits.
    """
    if config.num_gpu_blocks_override:
        return config.num_gpu_blocks_override
    num_groups = len(layout.groups)
    num_needed = max_num_seqs * -(-max_model_len // layout.block_size) * num_groups
    num_blocks = min(num_bytes // layout.block_bytes, num_needed)
    if num_blocks < num_groups:
        allowed = f"at least {num_groups * layout.block_bytes} bytes, one block of each group"
        raise InvalidInput.of([Problem("kv_cache_memory_bytes", show(num_bytes), allowed)])
    return num_blocks


def allocate_pool(layout: KVLayout, num_blocks: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The pool `[num_blocks, layers_of_group, 2, num_kv_heads, block_size, head_dim]`, zeros; on CPU pages are
    taken from the system when they are first written."""
    shape = (num_blocks, *layout.block_shape)
    return memory.zeros(shape, dtype) if device.type == "cpu" else torch.zeros(shape, dtype=dtype, device=device)
