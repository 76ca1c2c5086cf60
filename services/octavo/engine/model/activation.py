"""Activation functions by the names that configs use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from octavo.errors import InvalidInput, Problem, show
from octavo.kernels import op

Activation = Callable[[torch.Tensor], torch.Tensor]

_ACTIVATIONS: dict[str, Activation] = {
    "silu": op.silu,
    "swish": op.silu,
    "relu": op.relu,
    "gelu": op.gelu,
    "gelu_new": partial(op.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(op.gelu, approximate="tanh"),
}


def activation(name: str, field: str) -> Activation:
    """The function called `name`; raises `InvalidInput` about the config's `field` when there is none."""
    if name not in _ACTIVATIONS:
        raise InvalidInput.of([Problem(field, show(name), f"must be one of {tuple(_ACTIVATIONS)}")])
    return _ACTIVATIONS[name]
