"""The C++ kernels, as functions of torch tensors.

Activations are float32; weights and caches are float32 or bfloat16, and all sums are float32.  Every function keeps a
row's bits whatever rows are beside it and however many threads there are.
"""

from __future__ import annotations

import ctypes
import logging
import os
from dataclasses import dataclass
from functools import lru_cache

import torch

from octavo.kernels.cpu import memory
from octavo.kernels.cpu.build import BuildError, compiled_library, detect_isa, source_digest

logger = logging.getLogger(__name__)

WEIGHT_DTYPES = (torch.float32, torch.bfloat16)
SWITCH = "OCTAVO_CPU_KERNELS"
"""Environment variable: `torch` leaves the C++ kernels out, an ISA's name takes that one, empty the best."""

STEP = 16
"""Rows of norms are multiples of this: the widest vector."""

PANEL = 32
"""Outputs of a panel of packed weights (csrc/linear.h)."""

_c = ctypes
_POINTER, _INT, _LONG, _FLOAT = _c.c_void_p, _c.c_int, _c.c_long, _c.c_float


class _LinearCall(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("x", "weight", "bias", "out")),
        *((name, _LONG) for name in ("ldx", "ldo")),
        *((name, _INT) for name in ("m", "n", "k", "is_bf16", "activation")),
    )


class AttentionCall(ctypes.Structure):
    """`Attention` of csrc/attention.h."""

    _fields_ = (
        *((name, _POINTER) for name in ("q", "k", "v", "out", "kv", "slots", "tables", "starts", "lens", "contexts")),
        *((name, _LONG) for name in ("ldq", "ldk", "ldv", "block_stride", "table_width")),
        *(
            (name, _INT)
            for name in ("num_rows", "num_seqs", "num_heads", "num_kv_heads", "head_dim", "block_size", "window")
        ),
        ("scale", _FLOAT),
        ("is_bf16", _INT),
        *((name, _POINTER) for name in ("cosines", "sines", "positions", "q_norm", "k_norm")),
        ("eps", _FLOAT),
    )


class LayerCall(ctypes.Structure):
    """`Layer` of csrc/layer.h."""

    _fields_ = (
        *((name, _POINTER) for name in ("qkv", "output", "gate_up", "down")),
        *((name, _POINTER) for name in ("qkv_bias", "output_bias", "gate_up_bias", "down_bias")),
        *((name, _POINTER) for name in ("input_norm", "mlp_norm")),
        *((name, _INT) for name in ("hidden", "heads", "kv_heads", "ffn")),
        ("eps", _FLOAT),
        ("is_bf16", _INT),
    )


_SIGNATURES = {
    "octavo_width": (),
    "octavo_set_threads": (_INT,),
    "octavo_packed_size": (_INT, _INT),
    "octavo_pack": (_POINTER, _POINTER, _INT, _INT, _INT),
    "octavo_linear": (_POINTER,),
    "octavo_rms_norm": (_POINTER, _POINTER, _POINTER, _POINTER, _INT, _INT, _LONG, _FLOAT),
    "octavo_rope": (_POINTER, _POINTER, _POINTER, _INT, _INT, _INT, _LONG),
    "octavo_attention": (_POINTER,),
    "octavo_layer": (_POINTER, _POINTER, _POINTER, _POINTER, _INT),
}


def load_library(isa: str = "") -> ctypes.CDLL:
    """The compiled kernels for `isa` (default: the best one here).  Raises `BuildError`."""
    try:
        library = ctypes.CDLL(str(compiled_library(isa)))
    except OSError as error:
        raise BuildError(f"loading the kernels failed: {error}") from error
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = _LONG if name == "octavo_packed_size" else _INT if name == "octavo_width" else None
    return library


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """The kernels of this process, compiled at the first call; None where they cannot be had, with one warning."""
    wanted = os.environ.get(SWITCH, "")
    if wanted == "torch":
        return None
    try:
        found = load_library(wanted)
    except BuildError as error:
        logger.warning("computing with torch alone, which is slower: %s", error)
        return None
    found.octavo_set_threads(torch.get_num_threads())
    return found


def set_num_threads(num_threads: int) -> None:
    """Compute with this many threads from the next call on."""
    found = library()
    if found is not None:
        found.octavo_set_threads(num_threads)


def identity() -> str:
    """What the bits of the kernels depend on; `torch` without them."""
    return "torch" if library() is None else f"{os.environ.get(SWITCH) or detect_isa()}-{source_digest()}"


@dataclass(frozen=True)
class PackedWeight:
    """A weight [out_features, in_features] in the kernels' layout."""

    data: torch.Tensor
    out_features: int
    in_features: int

    @property
    def dtype(self) -> torch.dtype:
        return self.data.dtype

    @property
    def shape(self) -> tuple[int, int]:
        return self.out_features, self.in_features


def can_pack(weight: torch.Tensor) -> bool:
    """Whether `pack` takes this weight here."""
    is_fit = weight.device.type == "cpu" and weight.dtype in WEIGHT_DTYPES and weight.dim() == 2
    return is_fit and weight.shape[1] % 2 == 0 and library() is not None


def can_gate(weight: PackedWeight) -> bool:
    """Whether `linear` can be gated: gate and up fill panels of their own."""
    return weight.out_features % (2 * PANEL) == 0


def pack(weight: torch.Tensor) -> PackedWeight:
    """The weight [out, in] in the kernels' layout; `can_pack` says whether it can be."""
    found = library()
    assert found is not None
    weight = weight.contiguous()
    n, k = weight.shape
    data = memory.take(found.octavo_packed_size(n, k), weight.dtype)
    found.octavo_pack(weight.data_ptr(), data.data_ptr(), n, k, weight.dtype == torch.bfloat16)
    return PackedWeight(data, n, k)


def linear(
    x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None = None, *, is_gated: bool = False
) -> torch.Tensor:
    """x [num_rows, in] times weight, plus bias [out] → float32 [num_rows, out].

    `is_gated`: the outputs are gate and up, and the result is silu(gate) · up, [num_rows, out / 2].
    """
    found = library()
    assert found is not None
    if x.dtype != torch.float32:
        x = x.float()
    if x.stride(1) != 1:
        x = x.contiguous()
    num_rows, num_out = x.shape[0], weight.out_features // 2 if is_gated else weight.out_features
    out = torch.empty((num_rows, num_out), dtype=torch.float32)
    if num_rows == 0:
        return out
    if bias is not None:
        bias = bias.float()
    call = _LinearCall(
        x.data_ptr(),
        weight.data.data_ptr(),
        None if bias is None else bias.data_ptr(),
        out.data_ptr(),
        x.stride(0),
        num_out,
        num_rows,
        weight.out_features,
        weight.in_features,
        weight.data.dtype == torch.bfloat16,
        is_gated,
    )
    found.octavo_linear(ctypes.byref(call))
    return out


def can_norm(*rows: torch.Tensor) -> bool:
    """Whether the norms take these rows."""
    return all(x.shape[-1] % STEP == 0 for x in rows)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x float32 [num_rows, n] with contiguous rows, weight float32 [n]."""
    return _rms_norm(x, None, weight, eps)


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Adds x to `residual` (contiguous, of the same shape) in place; returns the norm of the sum."""
    return _rms_norm(x, residual, weight, eps)


def _rms_norm(x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float) -> torch.Tensor:
    found = library()
    assert found is not None
    out = torch.empty(x.shape, dtype=torch.float32)
    num_rows, n = x.shape
    if num_rows:
        stream = None if residual is None else residual.data_ptr()
        found.octavo_rms_norm(x.data_ptr(), stream, weight.data_ptr(), out.data_ptr(), num_rows, n, x.stride(0), eps)
    return out


def can_rotate(x: torch.Tensor) -> bool:
    """Whether `rope_` takes x [num_rows, num_heads, head_dim]."""
    return x.stride(1) == x.shape[2]


def rope_(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Rotate x float32 [num_rows, num_heads, head_dim], a view with heads side by side, in place.

    cos and sin are float32 [num_rows, head_dim], contiguous.
    """
    found = library()
    assert found is not None
    num_rows, num_heads, head_dim = x.shape
    if num_rows:
        found.octavo_rope(x.data_ptr(), cos.data_ptr(), sin.data_ptr(), num_rows, num_heads, head_dim, x.stride(0))
