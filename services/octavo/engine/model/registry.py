"""Which class serves which architecture.  A new model is one file and one row here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import torch

from octavo.engine.model.base import CausalLM
from octavo.engine.model.linear import Place
from octavo.engine.model.llama import LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM
from octavo.engine.model.opt import OPTForCausalLM
from octavo.errors import InvalidInput, Problem, show

if TYPE_CHECKING:
    from octavo.engine.parallel.comm import Comm


class ModelClass(Protocol):
    """Makes a model of one rank, its weights not yet loaded."""

    def __call__(
        self,
        config: Mapping[str, Any],
        place: Place,
        max_model_len: int = 0,
        rope_scaling: Mapping[str, Any] | str | None = None,
    ) -> CausalLM: ...


MODELS: dict[str, ModelClass] = {
    "LlamaForCausalLM": LlamaForCausalLM,
    "MistralForCausalLM": MistralForCausalLM,
    "Qwen2ForCausalLM": Qwen2ForCausalLM,
    "Qwen3ForCausalLM": Qwen3ForCausalLM,
    "OPTForCausalLM": OPTForCausalLM,
}
"""Architecture, as `architectures` of a Hugging Face config names it → its class."""


def model_class(config: Mapping[str, Any]) -> ModelClass:
    """The class for a config; raises `InvalidInput` that names the supported architectures."""
    names = config.get("architectures") or []
    for name in names if isinstance(names, list) else []:
        if name in MODELS:
            return MODELS[name]
    raise InvalidInput.of([Problem("architectures", show(names), f"supported are {', '.join(MODELS)}")])


def create_model(
    config: Mapping[str, Any],
    dtype: torch.dtype,
    device: torch.device | str,
    comm: Comm,
    max_model_len: int = 0,
    rope_scaling: Mapping[str, Any] | str | None = None,
) -> CausalLM:
    """One rank's model for a Hugging Face config, its weights not yet loaded.

    `max_model_len` 0 means the model's own limit; `rope_scaling` (a dict, or JSON; empty for none) replaces the
    config's scaling.  Raises `InvalidInput` when the config cannot be served, with every problem found.
    """
    cls = model_class(config)
    quantization = config.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method", "unnamed") if isinstance(quantization, Mapping) else quantization
        allowed = "only unquantized safetensors and GGUF files are supported"
        raise InvalidInput.of([Problem("quantization_config", show(method), allowed)])
    try:
        return cls(config, Place(dtype, torch.device(device), comm), max_model_len, rope_scaling or None)
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        # A config is a file that anyone may have written; the models check by name what is usually wrong in one.
        message = f"config.json: a value has another type than the model needs ({type(error).__name__}: {error})"
        raise InvalidInput(message, param="model") from error
