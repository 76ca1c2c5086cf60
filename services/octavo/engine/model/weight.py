"""Weights that load themselves: a `WeightSlot` per Hugging Face name, collected in a model's `WeightTable`.

A fused parameter has one slot per part (q, k, v of qkv; gate, up of gate_up), each a view of the parameter, and a
slot knows which rows or columns of the full weight its rank keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from octavo.errors import InvalidInput, Problem, show

MAX_LISTED = 20


@dataclass(frozen=True)
class WeightSlot:
    """Where one named weight goes.

    `target` is this rank's memory, `shape` the full weight's shape; the rank keeps `target.shape[axis]` entries of
    `axis` from `start` on.
    """

    target: torch.Tensor
    shape: tuple[int, ...]
    axis: int = 0
    start: int = 0

    def load(self, source: torch.Tensor) -> None:
        """Copy the rank's slice of `source` (any float dtype, the full shape) into the target."""
        part = source.narrow(self.axis, self.start, self.target.shape[self.axis])
        self.target.copy_(part)


def replicated(target: torch.Tensor) -> WeightSlot:
    """A slot that keeps the whole weight."""
    return WeightSlot(target, tuple(target.shape))


class WeightTable:
    """Every weight of a model by Hugging Face name.  Owns the account of what was loaded."""

    def __init__(self, slots: Iterable[tuple[str, WeightSlot]], prefix: str) -> None:
        """`prefix` is the part of names that some checkpoints leave out (`model.`)."""
        self._slots = dict(slots)
        self._shapes = {name: slot.shape for name, slot in self._slots.items()}
        self._ignored: set[str] = set()
        self._prefix = prefix

    def ignore(self, *names: str) -> None:
        """Accept weights of these names (whole, or the last parts of them) without using them."""
        self._ignored.update(names)

    @property
    def device(self) -> torch.device:
        """Where the weights go, until `release`."""
        return next(iter(self._slots.values())).target.device

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Name and full shape of every weight, in the order of the model."""
        yield from self._shapes.items()

    def fill(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Load all; raises one `InvalidInput` that lists missing, unknown, repeated and misshapen weights."""
        problems: list[Problem] = []
        filled: set[str] = set()
        for given, tensor in weights:
            name = given if given in self._slots else self._prefix + given
            slot = self._slots.get(name)
            if slot is None:
                if not self._is_ignored(given):
                    problems.append(Problem(given, "a weight of this name", "the model has no such weight"))
            elif name in filled:
                problems.append(Problem(name, "the weight twice", "each weight comes once"))
            elif tuple(tensor.shape) != slot.shape:
                problems.append(Problem(name, f"shape {tuple(tensor.shape)}", f"must be {slot.shape}"))
                filled.add(name)
            else:
                slot.load(tensor)
                filled.add(name)
        problems += [
            Problem(name, "no weight of this name", f"the model needs one of shape {slot.shape}")
            for name, slot in self._slots.items()
            if name not in filled
        ]
        if problems:
            more = len(problems) - MAX_LISTED
            listed = problems[:MAX_LISTED]
            if more > 0:
                listed.append(Problem("weights", show(more), "more problems like these"))
            raise InvalidInput.of(listed)

    def release(self) -> None:
        """Let go of the memory of the weights, which may then move; only the shapes remain."""
        self._slots.clear()

    def _is_ignored(self, name: str) -> bool:
        return any(name == ignored or name.endswith("." + ignored) for ignored in self._ignored)
