"""Rotary position embeddings: the tables of cosines and sines, and the ways to scale them.

Every variant is a function of the position alone, so that a cached key is right for every sequence that shares its
block, however the prompt was cut.  Four of the five are so by definition: default, linear, llama3 (Llama 3.1) and yarn
(arXiv:2309.00071) equal transformers at every position.

`dynamic` (NTK) is not: its base depends on the length of the sequence.  transformers takes the length of the sequence
so far at each forward pass and leaves older keys in the cache as they are.  Here, the token at position p is rotated
with the base for a sequence of p + 1 tokens (the original length at least).  That equals transformers wherever tokens
come one at a time, so for every output of a prompt within the original length, however far it goes on; it also equals
a single pass over a whole prompt up to the original length.  It differs in one case: transformers rotates all tokens
of a *prompt* longer than the original length with the base of the whole prompt; that would make a key depend on
how long its prompt is, and a block of the prefix cache wrong for every other prompt.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from octavo.errors import InvalidInput, Problem, show
from octavo.kernels.attention import Rotary

DEFAULT_THETA = 10000.0


@dataclass(frozen=True)
class RopeSpec:
    """What a config says about its rotary embedding.  `num_trained` is its `max_position_embeddings`."""

    kind: str
    head_dim: int
    theta: float
    num_trained: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def original_length(self) -> int:
        """The length that llama3 and yarn scale from."""
        return int(self.settings.get("original_max_position_embeddings") or self.num_trained)

    @property
    def factor(self) -> float:
        given = self.settings.get("factor")
        return float(given) if given is not None else self.num_trained / self.original_length

    @property
    def max_position(self) -> int:
        """The longest sequence that the model takes, scaling included."""
        if self.kind in ("linear", "dynamic"):
            return int(self.num_trained * self.factor)
        if self.kind == "yarn":
            return max(self.num_trained, int(self.original_length * self.factor))
        return self.num_trained


def read_rope(config: Mapping[str, Any], head_dim: int, override: Mapping[str, Any] | str | None = None) -> RopeSpec:
    """The spec in a Hugging Face config, in either of its forms: `rope_parameters`, or `rope_theta` and `rope_scaling`.

    `override` (a dict, or JSON) replaces the config's scaling, not its theta.  Raises `InvalidInput` with all problems.
    """
    parts = {name: config.get(name) or {} for name in ("rope_scaling", "rope_parameters")}
    wrong = [Problem(n, show(part), "must be an object") for n, part in parts.items() if not isinstance(part, Mapping)]
    if wrong:
        raise InvalidInput.of(wrong)
    own = {**parts["rope_scaling"], **parts["rope_parameters"]}
    theta = own.get("rope_theta") or config.get("rope_theta") or DEFAULT_THETA
    scaling = _parse(override) if override else own
    nested = [name for name, value in scaling.items() if isinstance(value, Mapping)]
    if nested:
        allowed = "one set of RoPE settings for all layers; settings per kind of layer are not supported"
        raise InvalidInput.of([Problem("rope_parameters", show(nested), allowed)])
    theta = scaling.get("rope_theta") or theta
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    settings = dict(scaling)
    if config.get("original_max_position_embeddings") and not override:
        settings["original_max_position_embeddings"] = config["original_max_position_embeddings"]
    if isinstance(theta, bool) or not isinstance(theta, int | float) or theta <= 0:
        raise InvalidInput.of([Problem("rope_theta", show(theta), "must be a number above 0")])
    spec = RopeSpec(kind, head_dim, float(theta), int(config["max_position_embeddings"]), settings)
    problems = validate_rope(spec)
    partial = config.get("partial_rotary_factor") or scaling.get("partial_rotary_factor") or 1.0
    if partial != 1.0:
        problems.append(Problem("partial_rotary_factor", show(partial), "must be 1: the whole head is rotated"))
    if problems:
        raise InvalidInput.of(problems)
    return spec


def _parse(override: Mapping[str, Any] | str) -> dict[str, Any]:
    if not isinstance(override, str):
        return dict(override)
    try:
        value = json.loads(override)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidInput.of([Problem("rope_scaling", show(override), "must be a JSON object")])
    return value


_NEEDED = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": (),
}


def validate_rope(spec: RopeSpec) -> list[Problem]:
    """Everything wrong with a spec."""
    if not isinstance(spec.kind, str) or spec.kind not in _NEEDED:
        return [Problem("rope_scaling.rope_type", show(spec.kind), f"must be one of {tuple(_NEEDED)}")]
    out = []
    if spec.head_dim % 2:
        out.append(Problem("head_dim", show(spec.head_dim), "must be even"))
    for name in _NEEDED[spec.kind]:
        if spec.settings.get(name) is None:
            out.append(Problem(f"rope_scaling.{name}", "nothing", f"{spec.kind} needs it"))
    for name in ("factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor"):
        value = spec.settings.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value <= 0):
            out.append(Problem(f"rope_scaling.{name}", show(value), "must be a number above 0"))
    if spec.kind == "llama3" and not out and spec.settings["low_freq_factor"] == spec.settings["high_freq_factor"]:
        out.append(
            Problem("rope_scaling.high_freq_factor", show(spec.settings["high_freq_factor"]), "must be above low")
        )
    return out


def _exponents(head_dim: int) -> torch.Tensor:
    return torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim


def _default(spec: RopeSpec) -> torch.Tensor:
    return 1.0 / (spec.theta ** _exponents(spec.head_dim))


def _linear(spec: RopeSpec) -> torch.Tensor:
    return _default(spec) / spec.factor


def _llama3(spec: RopeSpec) -> torch.Tensor:
    """Long wavelengths are divided by the factor, short ones kept, those between blended."""
    frequencies = _default(spec)
    low, high = spec.settings["low_freq_factor"], spec.settings["high_freq_factor"]
    wavelengths = 2 * math.pi / frequencies
    turns = spec.original_length / wavelengths
    blend = (turns - low) / (high - low)
    blended = (1 - blend) * frequencies / spec.factor + blend * frequencies
    scaled = torch.where(turns < low, frequencies / spec.factor, frequencies)
    is_between = (turns >= low) & (turns <= high)
    return torch.where(is_between, blended, scaled)


def _yarn(spec: RopeSpec) -> torch.Tensor:
    """Dimensions that turn often within the original length are kept, slow ones interpolated, a ramp between."""
    dim = spec.head_dim

    def dimension_of(num_turns: float) -> float:
        return dim * math.log(spec.original_length / (num_turns * 2 * math.pi)) / (2 * math.log(spec.theta))

    low = dimension_of(spec.settings.get("beta_fast") or 32)
    high = dimension_of(spec.settings.get("beta_slow") or 1)
    if spec.settings.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    kept = 1 - ramp
    periods = spec.theta ** _exponents(dim)
    return (1.0 / (spec.factor * periods)) * (1 - kept) + (1.0 / periods) * kept


def _dynamic(spec: RopeSpec, positions: torch.Tensor) -> torch.Tensor:
    """[num_positions, head_dim / 2]: each position with the base of the sequence that ends there."""
    dim, trained, factor = spec.head_dim, spec.num_trained, spec.factor
    lengths = torch.clamp(positions + 1, min=trained)
    base = spec.theta * ((factor * lengths / trained) - (factor - 1)) ** (dim / (dim - 2))
    return 1.0 / (base[:, None] ** _exponents(dim))


_FREQUENCIES: dict[str, Callable[[RopeSpec], torch.Tensor]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}


def attention_scale(spec: RopeSpec) -> float:
    """What yarn multiplies cosines and sines by; 1 for the others."""
    if spec.kind != "yarn":
        return 1.0
    given = spec.settings.get("attention_factor")
    if given is not None:
        return float(given)

    def scale(weight: float) -> float:
        return 1.0 if spec.factor <= 1 else 0.1 * weight * math.log(spec.factor) + 1.0

    mscale, all_dim = spec.settings.get("mscale"), spec.settings.get("mscale_all_dim")
    return scale(mscale) / scale(all_dim) if mscale and all_dim else scale(1.0)


_CHUNK = 128


def _turned(spec: RopeSpec, start: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [_CHUNK, head_dim] of the positions from `start` on."""
    positions = torch.arange(start, start + _CHUNK)
    frequencies = _dynamic(spec, positions) if spec.kind == "dynamic" else _FREQUENCIES[spec.kind](spec)
    angles = (positions.to(torch.float32)[:, None] * frequencies).repeat(1, 2)
    scale = attention_scale(spec)
    return angles.cos() * scale, angles.sin() * scale


class RopeTable:
    """Cosines and sines of every position, computed in float32 and kept in `dtype`: [max_len, head_dim] each.

    The two halves of a row are equal: dimension i turns with dimension i + head_dim / 2.  A row's bits do not depend
    on `max_len` or the number of threads: torch computes the ends of a tensor, and of each thread's share, by another
    code path than the rest, so rows are always computed in tensors of one shape, too small to be shared out.
    """

    def __init__(self, spec: RopeSpec, max_len: int, dtype: torch.dtype, device: torch.device) -> None:
        self.spec = spec
        chunks = [_turned(spec, start) for start in range(0, max_len, _CHUNK)]
        cos, sin = (torch.cat(parts)[:max_len] for parts in zip(*chunks, strict=True))
        self.cos, self.sin = cos.to(device, dtype), sin.to(device, dtype)

    def rotary(self, positions: torch.Tensor) -> Rotary:
        """The tables, and the positions [num_tokens] to read them at."""
        return Rotary(self.cos, self.sin, positions)

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin [num_tokens, head_dim] of positions [num_tokens]."""
        return self.cos[positions], self.sin[positions]
