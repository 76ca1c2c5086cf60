"""How KV lies in memory: `KVLayout` and the groups of layers that share it.

A rank's pool is `kv[num_blocks, layers_of_group, 2, num_kv_heads, block_size, head_dim]`: one block is one contiguous
range of bytes, so one copy moves it, and heads are outside tokens, so that a tensor-parallel slice is contiguous per
(block, layer, k|v).  All groups of a model have equal bytes per block and draw from one pool.
"""

from __future__ import annotations

import msgspec

from octavo.errors import Problem, show

GROUP_KINDS = ("full", "sliding", "state", "latent", "draft")
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
BLOCK_SIZES = (16, 32, 64, 128)


class GroupSpec(msgspec.Struct, frozen=True, array_like=True):
    """One group: layers that share a block table.  `window` is in tokens, 0 for kinds without one."""

    group: int
    kind: str
    layers: tuple[int, ...]
    window: int = 0


class KVLayout(msgspec.Struct, frozen=True, array_like=True):
    """Layout of one rank's KV; `num_kv_heads` counts the heads of that rank."""

    block_size: int
    num_kv_heads: int
    head_dim: int
    dtype: str
    groups: tuple[GroupSpec, ...]

    @property
    def layers_per_group(self) -> int:
        return len(self.groups[0].layers)

    @property
    def block_shape(self) -> tuple[int, int, int, int, int]:
        return (self.layers_per_group, 2, self.num_kv_heads, self.block_size, self.head_dim)

    @property
    def block_bytes(self) -> int:
        size = DTYPE_BYTES[self.dtype]
        for extent in self.block_shape:
            size *= extent
        return size

    def problems(self) -> list[Problem]:
        """Everything wrong with this layout."""
        out = []
        if self.block_size not in BLOCK_SIZES:
            out.append(Problem("block_size", show(self.block_size), f"must be one of {BLOCK_SIZES}"))
        if self.dtype not in DTYPE_BYTES:
            out.append(Problem("kv_dtype", show(self.dtype), f"must be one of {tuple(DTYPE_BYTES)}"))
        if not self.groups:
            out.append(Problem("groups", "none", "at least one group"))
        if len({len(g.layers) for g in self.groups}) > 1:
            sizes = [len(g.layers) for g in self.groups]
            out.append(Problem("groups", show(sizes), "every group must have the same number of layers"))
        for index, g in enumerate(self.groups):
            if g.kind not in GROUP_KINDS:
                out.append(Problem("groups.kind", show(g.kind), f"must be one of {GROUP_KINDS}"))
            if g.group != index:
                out.append(Problem("groups.group", show(g.group), f"groups are numbered in order, here {index}"))
        return out
