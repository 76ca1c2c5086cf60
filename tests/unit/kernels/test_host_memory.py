"""Memory in large pages."""

from __future__ import annotations

import gc

import torch

from octavo.kernels.cpu import memory


def test_what_is_taken_is_zero_aligned_and_apart() -> None:
    arena = memory.Arena()
    parts = [arena.take(size) for size in (3, 1000, memory.CHUNK // 2, memory.CHUNK // 2, memory.CHUNK, 5)]
    for value, part in enumerate(parts, 1):
        assert part.data_ptr() % memory.ALIGNMENT == 0
        assert not part.any()
        part.fill_(value)
    assert [int(part.min()) for part in parts] == [int(part.max()) for part in parts] == [1, 2, 3, 4, 5, 6]


def test_zeros_have_shape_and_dtype() -> None:
    got = memory.zeros((3, 5, 7), torch.bfloat16)
    assert got.shape == (3, 5, 7)
    assert got.dtype == torch.bfloat16
    assert got.is_contiguous()
    assert not got.any()
    assert memory.zeros((0, 4), torch.float32).numel() == 0


def test_memory_lives_as_long_as_a_tensor_in_it() -> None:
    part = memory.large_zeros(100)[10:20]
    gc.collect()
    part.fill_(7)
    assert part.tolist() == [7] * 10
