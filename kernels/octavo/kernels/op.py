"""The ops of a layer whose rows have the same bits in every batch: linear, norms, rope, activations.

Rows are the first dimension, [num_rows, ...].  On CPU the C++ kernels (`octavo.kernels.cpu.native`), where they are
there, compute products with packed weights and what has float32 activations; everything else is torch.  Torch's own CPU
operations keep a row's bits as long as three things are avoided, each of which was measured to break them: a matrix
product of one row (it takes another kernel), float32 products through `F.linear` (the BLAS cuts the sum over K by the
number of rows and threads), and activations whose vectorised loop ends in a scalar tail (a row in the tail rounds
differently).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import torch
import torch.nn.functional as F

from octavo.kernels.cpu import native
from octavo.kernels.triton.platform import runs_triton

Weight: TypeAlias = torch.Tensor | native.PackedWeight

_HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
_ONEDNN_DTYPES = (torch.float32, torch.bfloat16)
MAX_FUSED_ROWS = 16
_BLAS_ROWS = 16
_PACK_ROWS = 16
_TAIL = 64
_GRAIN = 32768


def compute_dtype(dtype: torch.dtype, device: torch.device | str) -> torch.dtype:
    """The dtype of activations for a model of `dtype`: float32 with the C++ kernels, else the model's own."""
    is_native = torch.device(device).type == "cpu" and dtype in native.WEIGHT_DTYPES and native.library() is not None
    return torch.float32 if is_native else dtype


def linear(x: torch.Tensor, weight: Weight, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x [num_rows, in] times weight [out, in], plus bias [out] → [num_rows, out], in x's dtype.

    A weight that `pack_linear` made for the C++ kernels goes there.  On CPU else through oneDNN, with at least two
    rows: its result for a row is the same for every number of rows from 2 on and for any number of threads.
    Without oneDNN rows are padded for the BLAS, which is the same less often.
    """
    if isinstance(weight, native.PackedWeight):
        return native.linear(x, weight, bias).to(x.dtype)
    num_rows = x.shape[0]
    if x.device.type != "cpu" or num_rows == 0:
        return F.linear(x, weight, bias)
    if _HAS_ONEDNN and x.dtype in _ONEDNN_DTYPES:
        if num_rows == 1:
            return _onednn(torch.cat((x, x)), weight, bias)[:1]
        return _onednn(x, weight, bias)
    missing = -num_rows % _BLAS_ROWS
    return F.linear(F.pad(x, (0, 0, 0, missing)), weight, bias)[:num_rows]


def is_few(x: torch.Tensor) -> bool:
    """Whether products of these rows [num_rows, n] gain from `fused_linear`: few rows, on a GPU."""
    return runs_triton(x) and x.shape[0] <= MAX_FUSED_ROWS


def fused_linear(
    x: torch.Tensor,
    weight: Weight,
    bias: torch.Tensor | None = None,
    *,
    norm: torch.Tensor | None = None,
    eps: float = 0.0,
    residual: torch.Tensor | None = None,
    is_gated: bool = False,
) -> torch.Tensor:
    """`linear` of few rows with what is around it: [num_rows, out], in x's dtype.

    With `norm` [in], x is normed first, as by `rms_norm`; with `is_gated` the weight's first half are gates, and the
    result is silu(gate) · up; `residual` [num_rows, out] is added.
    """
    if runs_triton(x) and isinstance(weight, torch.Tensor):
        from octavo.kernels.triton import skinny

        if skinny.can_run(x, weight, bias, has_norm=norm is not None, is_gated=is_gated):
            return skinny.fused_linear(x, weight, bias, norm=norm, eps=eps, residual=residual, is_gated=is_gated)
    if norm is not None:
        x = add_rms_norm(x, None, norm, eps)[0]
    out = linear(x, weight, bias)
    if is_gated:
        out = silu_mul(out)
    return out if residual is None else residual + out


def linear_float32(x: torch.Tensor, weight: Weight) -> torch.Tensor:
    """x [num_rows, in] times weight [out, in] → float32 [num_rows, out], not rounded in between on a GPU."""
    if isinstance(weight, torch.Tensor) and x.is_cuda and x.dtype in (torch.bfloat16, torch.float16):
        return torch.mm(x, weight.t(), out_dtype=torch.float32)
    return linear(x, weight).float()


def linear_silu_mul(x: torch.Tensor, weight: Weight, bias: torch.Tensor | None) -> torch.Tensor:
    """`silu_mul` of a linear whose outputs are [2 n], the gate first."""
    if isinstance(weight, native.PackedWeight) and native.can_gate(weight):
        return native.linear(x, weight, bias, is_gated=True).to(x.dtype)
    return silu_mul(linear(x, weight, bias))


def pack_linear(weight: torch.Tensor) -> Weight:
    """The weight [out, in] as `linear` reads it fastest; the result can only be given to the linears here.

    On CPU the layout of the C++ kernels.  Without them oneDNN's blocked layout, which gives the bits of the plain
    weight and which it would otherwise make anew for every product (a bf16 product of few rows takes half the
    time).  Elsewhere the weight itself.
    """
    if native.can_pack(weight):
        return native.pack(weight)
    if weight.device.type == "cpu" and _HAS_ONEDNN and weight.dtype in _ONEDNN_DTYPES:
        return torch.ops.mkldnn._reorder_linear_weight(weight, _PACK_ROWS)
    return weight


def _onednn(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x [..., n] over the root of its mean square, times weight [n]; statistics in float32."""
    if _is_native(x, weight) and native.can_norm(x):
        return native.rms_norm(x.reshape(-1, x.shape[-1]), weight, eps).view(x.shape)
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The stream `residual + x` (x itself without a residual) [num_rows, n], normed as by `rms_norm`, and the stream.

    May change `residual`, which the caller gives up.
    """
    if runs_triton(x):
        from octavo.kernels.triton import layer

        return layer.add_rms_norm(x, residual, weight, eps)
    if residual is not None and _is_native(x, residual, weight) and native.can_norm(x, residual):
        return native.add_rms_norm(x, residual, weight, eps), residual
    stream = x if residual is None else residual + x
    return rms_norm(stream, weight, eps), stream


def layer_norm(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float) -> torch.Tensor:
    """x [..., n] with mean 0 and variance 1, times weight [n], plus bias [n]; statistics in float32."""
    return F.layer_norm(x, (x.shape[-1],), weight, bias, eps)


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate x [num_rows, num_heads, head_dim] by cos and sin [num_rows, head_dim] (both halves of a row equal).

    Dimension i turns with dimension i + head_dim / 2.
    """
    half = x.shape[-1] // 2
    cos, sin = cos[:, None, :half], sin[:, None, :half]
    left, right = x[..., :half], x[..., half:]
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    torch.sub(left * cos, right * sin, out=out[..., :half])
    torch.add(right * cos, left * sin, out=out[..., half:])
    return out


def rope_(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """`rope` that may write into x, whose heads lie side by side; returns the result."""
    if _is_native(x, cos, sin) and native.can_rotate(x):
        native.rope_(x, cos, sin)
        return x
    return rope(x, cos, sin)


def _is_native(*tensors: torch.Tensor) -> bool:
    """Whether the C++ kernels take these: float32 on CPU, the last dimension without gaps."""
    is_fit = all(t.dtype == torch.float32 and t.device.type == "cpu" and t.stride(-1) == 1 for t in tensors)
    return is_fit and native.library() is not None


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """[num_rows, 2 n], the gate first → silu(gate) · up, [num_rows, n]."""
    if runs_triton(gate_up):
        from octavo.kernels.triton import layer

        return layer.silu_mul(gate_up)
    gate, up = gate_up.chunk(2, dim=-1)
    return silu(gate).mul_(up)


def silu(x: torch.Tensor) -> torch.Tensor:
    """x · sigmoid(x) of x [num_rows, n]."""
    return _without_tail(F.silu, x)


def gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """GELU of x [num_rows, n]; `approximate` is `none` or `tanh`."""
    return _without_tail(partial(F.gelu, approximate=approximate), x)


def relu(x: torch.Tensor) -> torch.Tensor:
    """max(x, 0): exact in every loop."""
    return F.relu(x)


def _without_tail(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """An elementwise `function` of x [num_rows, n], called such that no element falls into a loop's scalar tail."""
    if x.device.type != "cpu" or (x.shape[1] % _TAIL == 0 and _has_no_tail(x.numel())):
        return function(x)
    num_rows, width = x.shape
    x = F.pad(x, (0, -width % _TAIL))
    num_first = num_rows
    while num_first and not _has_no_tail(num_first * x.shape[1]):
        num_first -= 1
    if num_first == num_rows:
        return function(x)[:, :width]
    if num_first:
        parts = [function(x[:num_first]), _without_tail(function, x[num_first:])]
    else:
        parts = [function(piece) for piece in x.reshape(-1).split(_GRAIN)]
    return torch.cat(parts).view(num_rows, -1)[:, :width]


def _has_no_tail(num_elements: int) -> bool:
    """Whether no thread's share of an elementwise loop ends within a vector, given rows of whole vectors.

    Torch cuts the elements into equal shares of at least `_GRAIN`; a vectorised pass takes up to `_TAIL` at a time.
    """
    shares = min(torch.get_num_threads(), -(-num_elements // _GRAIN)) or 1
    return -(-num_elements // shares) % _TAIL == 0
