"""Seeded random weights, for tests and benchmarks without a checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from octavo.engine.model.base import CausalLM
from octavo.hub.files import ModelFiles

STANDARD_DEVIATION = 0.02


def weights(model: CausalLM, files: ModelFiles, seed: int) -> tuple[int, Iterator[tuple[str, torch.Tensor]]]:
    """Number of weights, and each in full: a function of seed and name alone, so that every rank slices the same.

    A GPU draws its own, which are others than those of a CPU: there it takes seconds for what takes a CPU minutes.
    """
    shapes = list(model.weights.shapes())
    device = model.weights.device
    one = draw if device.type == "cpu" else partial(draw_on_device, device=device)
    return len(shapes), ((name, one(name, shape, seed)) for name, shape in shapes)


def draw(name: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """float32: ones around 1 for norm weights, else normal around 0."""
    noise = np.random.default_rng(_key(name, seed)).standard_normal(shape, dtype=np.float32)
    noise *= np.float32(STANDARD_DEVIATION)
    return torch.from_numpy(noise + np.float32(1.0) if _is_norm(name) else noise)


def draw_on_device(name: str, shape: tuple[int, ...], seed: int, device: torch.device) -> torch.Tensor:
    """As `draw`, from the device's own generator."""
    generator = torch.Generator(device).manual_seed(_key(name, seed) >> 1)
    noise = torch.empty(shape, dtype=torch.float32, device=device)
    return noise.normal_(1.0 if _is_norm(name) else 0.0, STANDARD_DEVIATION, generator=generator)


def _key(name: str, seed: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:8], "little")


def _is_norm(name: str) -> bool:
    return "norm" in name and name.endswith(".weight")
