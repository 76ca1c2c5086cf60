"""A whole decoder layer in one C++ call (csrc/layer.h): at a few milliseconds a step, calls from Python count."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch

from octavo.kernels.attention import HeadNorm, Rotary
from octavo.kernels.cpu import native
from octavo.kernels.cpu.native_attention import with_rotary


@dataclass(frozen=True)
class LayerWeights:
    """A pre-norm layer of rotary attention and a feed-forward gated by SiLU; each linear is (weight, bias or None)."""

    qkv: tuple[native.PackedWeight, torch.Tensor | None]
    output: tuple[native.PackedWeight, torch.Tensor | None]
    gate_up: tuple[native.PackedWeight, torch.Tensor | None]
    down: tuple[native.PackedWeight, torch.Tensor | None]
    input_norm: torch.Tensor
    mlp_norm: torch.Tensor
    head_norm: HeadNorm | None
    eps: float


class NativeLayer:
    """One layer, ready to run; holds its weights."""

    def __init__(self, weights: LayerWeights) -> None:
        linears = (weights.qkv, weights.output, weights.gate_up, weights.down)
        biases = [None if bias is None else bias.float().contiguous() for _, bias in linears]
        (qkv, _), (output, _), (gate_up, _) = linears[:3]
        self.hidden = qkv.in_features
        self._held = (weights, biases)
        self._head_norm = weights.head_norm
        self._call = native.LayerCall(
            *(weight.data.data_ptr() for weight, _ in linears),
            *(None if bias is None else bias.data_ptr() for bias in biases),
            weights.input_norm.data_ptr(),
            weights.mlp_norm.data_ptr(),
            qkv.in_features,
            output.in_features,
            (qkv.out_features - output.in_features) // 2,
            gate_up.out_features // 2,
            weights.eps,
            qkv.dtype == torch.bfloat16,
        )

    @staticmethod
    def validate(weights: LayerWeights) -> list[str]:
        """Reasons why this layer cannot run in one call; empty when it can."""
        reasons = []
        linears = [weight for weight, _ in (weights.qkv, weights.output, weights.gate_up, weights.down)]
        if len({weight.dtype for weight in linears}) > 1:
            reasons.append("its weights have several dtypes")
        if not native.can_gate(weights.gate_up[0]):
            reasons.append(
                f"{weights.gate_up[0].out_features} outputs of gate and up are no multiple of {2 * native.PANEL}"
            )
        if weights.qkv[0].in_features % native.STEP:
            reasons.append(f"hidden size {weights.qkv[0].in_features} is no multiple of {native.STEP}")
        norms = [weights.input_norm, weights.mlp_norm]
        norms += [] if weights.head_norm is None else [weights.head_norm.q, weights.head_norm.k]
        if any(norm.dtype != torch.float32 for norm in norms):
            reasons.append("its norms are not float32")
        return reasons

    def run(
        self,
        attention: native.AttentionCall,
        rotary: Rotary,
        x: torch.Tensor,
        residual: torch.Tensor,
        *,
        is_first: bool,
    ) -> None:
        """x, what the layer before adds to `residual`, becomes what this one adds to it.

        Both are float32 [num_rows, hidden], contiguous.  The first layer's x is the embedding, and `residual` has no
        values yet.
        """
        library = native.library()
        assert library is not None
        with_rotary(attention, rotary, self._head_norm)
        library.octavo_layer(
            ctypes.byref(self._call), ctypes.byref(attention), x.data_ptr(), residual.data_ptr(), is_first
        )
        attention.cosines = None
