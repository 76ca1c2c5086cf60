"""Where the tests of Triton kernels run: compiled on a GPU, else interpreted on the host, where triton is installed.

Import it before anything that imports triton.  The interpreter computes bfloat16 products wrong, so only a GPU tests
them.
"""

from __future__ import annotations

import os

import pytest
import torch

HAS_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if HAS_GPU else "cpu")
if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="the kernels' tests need the package triton (interpreted where there is no GPU)")
DTYPES = [torch.float32, torch.float16, torch.bfloat16] if HAS_GPU else [torch.float32, torch.float16]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
"""By which the norm of an error, over that of the float64 reference, stays below."""


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """‖got - want‖ / ‖want‖ in float64; NaN where something was not written."""
    return float((got.double() - want.double()).norm() / want.double().norm())


def poisoned(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor full of NaN, so that what is not written, or read before, shows."""
    return torch.full(shape, float("nan"), dtype=dtype, device=DEVICE)
