"""The workloads of the GPU benchmark: prompts of random ids with fixed output lengths, seeded, fresh per repetition."""

from __future__ import annotations

import zlib

import numpy as np

Job = tuple[list[int], int]
"""Prompt ids and the number of tokens to put out."""

FIRST_ID = 256


def _rng(name: str, repetition: int) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(name.encode()), repetition])


def _ids(rng: np.random.Generator, vocab_size: int, num: int) -> list[int]:
    return rng.integers(FIRST_ID, vocab_size - 2, size=int(num)).tolist()


def fixed(name: str, vocab_size: int, num_jobs: int, num_in: int, num_out: int, repetition: int) -> list[Job]:
    """`num_jobs` prompts of `num_in` tokens."""
    rng = _rng(f"{name}-{num_jobs}-{num_in}-{num_out}", repetition)
    return [(_ids(rng, vocab_size, num_in), num_out) for _ in range(num_jobs)]


def throughput_fixed(vocab_size: int, repetition: int) -> list[Job]:
    """T1: 512 requests, 512 in, 128 out."""
    return fixed("T1", vocab_size, 512, 512, 128, repetition)


def throughput_mixed(vocab_size: int, repetition: int, num_jobs: int = 1000) -> list[Job]:
    """T2: lengths uniform in 100..1024, in and out."""
    rng = _rng(f"T2-{num_jobs}", repetition)
    ins, outs = rng.integers(100, 1025, size=num_jobs), rng.integers(100, 1025, size=num_jobs)
    return [(_ids(rng, vocab_size, i), int(o)) for i, o in zip(ins, outs, strict=True)]


def latency(vocab_size: int, batch: int, num_out: int, repetition: int) -> list[Job]:
    """A batch of 512-token prompts."""
    return fixed("LAT", vocab_size, batch, 512, num_out, repetition)


def prefill(vocab_size: int, repetition: int) -> list[Job]:
    """P1: 16 prompts of 4096, one token out."""
    return fixed("P1", vocab_size, 16, 4096, 1, repetition)


def shared_prefix(vocab_size: int, repetition: int, *, is_shared: bool, suffix: int = 0) -> list[Job]:
    """PC: 64 requests of a 2048-token prefix (one for all when shared) and 64 own tokens, 32 out."""
    prefix = _ids(_rng("PC-prefix", repetition), vocab_size, 2048)
    rng = _rng(f"PC-suffix-{repetition}-{is_shared}", suffix)
    return [((prefix if is_shared else _ids(rng, vocab_size, 2048)) + _ids(rng, vocab_size, 64), 32) for _ in range(64)]
