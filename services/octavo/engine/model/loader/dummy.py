"""Seeded random weights, for tests and benchmarks without a checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import torch

from octavo.engine.model.base import CausalLM
from octavo.hub.files import ModelFiles

STANDARD_DEVIATION = 0.02


def weights(model: CausalLM, files: ModelFiles, seed: int) -> tuple[int, Iterator[tuple[str, torch.Tensor]]]:
    """Number of weights, and each in full: a function of seed and name alone, so that every rank slices the same."""
    shapes = list(model.weights.shapes())
    return len(shapes), ((name, draw(name, shape, seed)) for name, shape in shapes)


def draw(name: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """float32: ones around 1 for norm weights, else normal around 0."""
    key = int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:8], "little")
    noise = np.random.default_rng(key).standard_normal(shape, dtype=np.float32) * np.float32(STANDARD_DEVIATION)
    is_norm = "norm" in name and name.endswith(".weight")
    return torch.from_numpy(noise + np.float32(1.0) if is_norm else noise)
