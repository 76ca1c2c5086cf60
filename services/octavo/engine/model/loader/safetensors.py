"""Weights from safetensors files, single or sharded; memory-mapped, one tensor in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from octavo.engine.model.base import CausalLM
from octavo.errors import InvalidInput, Problem, show
from octavo.hub.files import ModelFiles


def weights(model: CausalLM, files: ModelFiles, seed: int) -> tuple[int, Iterator[tuple[str, torch.Tensor]]]:
    """Number of weights, and each by name as stored.  Raises `InvalidInput` for a broken file."""
    if not files.weights:
        raise InvalidInput.of([Problem("model", show(files.name), "has no safetensors files")])
    num_weights = sum(len(_names(path)) for path in files.weights)
    return num_weights, _read(files.weights)


def _broken(path: Path, error: Exception) -> InvalidInput:
    return InvalidInput.of([Problem("model", show(str(path)), f"is no readable safetensors file ({error})")])


def _names(path: Path) -> list[str]:
    try:
        with safe_open(path, framework="pt") as file:
            return list(file.keys())
    except (SafetensorError, OSError) as error:
        raise _broken(path, error) from error


def _read(paths: tuple[Path, ...]) -> Iterator[tuple[str, torch.Tensor]]:
    for path in paths:
        with ExitStack() as stack:
            try:
                file = stack.enter_context(safe_open(path, framework="pt"))
            except (SafetensorError, OSError) as error:
                raise _broken(path, error) from error
            for name in file.keys():  # noqa: SIM118 - a safetensors handle is no mapping and does not iterate
                yield name, file.get_tensor(name)
