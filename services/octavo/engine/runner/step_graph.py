"""`StepGraphs`: steps as CUDA graphs, one per number of rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import torch


def decode_sizes(max_rows: int) -> list[int]:
    """Numbers of rows of decode steps to capture: each of up to `max_rows` rows pads by at most an eighth, or to 8."""
    sizes = [1, 2, 4]
    size = 8
    while size < max_rows:
        sizes.append(size)
        size += 8 if size < 64 else 16 if size < 256 else 32
    return [s for s in sizes if s < max_rows] + [max_rows]


def mixed_sizes(max_rows: int) -> list[int]:
    """Numbers of rows of steps with prefills to capture: powers of 2 from 64 on, and halfway between them."""
    sizes, size = [], 64
    while size < max_rows:
        sizes += [size, size * 3 // 2]
        size *= 2
    return [s for s in sizes if s < max_rows] + [max_rows]


class StepGraphs:
    """Owns the graphs of one kind of step, and the tensor that each leaves behind."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sorted(sizes)
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}

    def capture(self, prepare: Callable[[int], None], step: Callable[[int], torch.Tensor], pool: Any = None) -> Any:
        """Capture `step(n)` for every size, the largest first, so that the others use its memory; the memory pool.

        `prepare(n)` sets up inputs of n rows that the step can be run on.  Graphs that share a `pool` must not be
        replayed before what an earlier one left has been read.
        """
        for size in reversed(self._sizes):
            prepare(size)
            step(size)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                left = step(size)
            pool = pool or graph.pool()
            self._graphs[size] = (graph, left)
        torch.cuda.synchronize()
        return pool

    def padded(self, num_rows: int) -> int | None:
        """The captured size that serves `num_rows` rows, None when there is none."""
        at = bisect_left(self._sizes, num_rows)
        size = self._sizes[at] if at < len(self._sizes) else 0
        return size if size in self._graphs else None

    def replay(self, size: int) -> torch.Tensor:
        """Launch a captured step; what it leaves, which the next replay may overwrite."""
        graph, left = self._graphs[size]
        graph.replay()
        return left
