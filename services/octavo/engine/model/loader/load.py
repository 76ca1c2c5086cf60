"""`load`: fill a model with weights from whatever format its files have."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from octavo.engine.model.base import CausalLM
from octavo.engine.model.loader import dummy, gguf, safetensors
from octavo.errors import InvalidInput, Problem, show
from octavo.hub.files import ModelFiles

Progress = Callable[[float], None]
"""Called with the fraction loaded so far, 0 to 1."""

Source = Callable[[CausalLM, ModelFiles, int], tuple[int, Iterator[tuple[str, torch.Tensor]]]]
"""(model, files, seed) → how many weights will come, and the weights by Hugging Face name."""

SOURCES: dict[str, Source] = {
    "safetensors": safetensors.weights,
    "gguf": gguf.weights,
    "dummy": dummy.weights,
}


def _no_progress(fraction: float) -> None:
    return None


def load(
    model: CausalLM,
    files: ModelFiles,
    load_format: str = "auto",
    seed: int = 0,
    progress: Progress = _no_progress,
) -> None:
    """Fill `model` from `files`; `load_format` auto takes the files' own, dummy draws weights from `seed`.

    Raises `InvalidInput` for an unknown format, broken files, and missing, unknown or misshapen weights.
    """
    name = files.format if load_format == "auto" else load_format
    if name not in SOURCES:
        allowed = f"must be one of {tuple(SOURCES)}; the model's files are of format {files.format!r}"
        raise InvalidInput.of([Problem("load_format", show(name), allowed)])
    if name != "dummy" and name != files.format:
        raise InvalidInput.of([Problem("load_format", show(name), f"the model's files are of format {files.format!r}")])
    num_weights, weights = SOURCES[name](model, files, seed)
    model.load_weights(_counted(weights, num_weights, progress))


def _counted(
    weights: Iterator[tuple[str, torch.Tensor]], num_weights: int, progress: Progress
) -> Iterator[tuple[str, torch.Tensor]]:
    progress(0.0)
    for index, weight in enumerate(weights, 1):
        yield weight
        progress(index / max(num_weights, index))
