"""Layer ops in torch: close to their references, rows independent of the batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from octavo.kernels import op
from octavo.kernels.cpu import native
from octavo.kernels.reference import op as reference

DTYPES = [torch.float32, torch.bfloat16]
WIDTHS = [48, 64, 100, 192]


@pytest.fixture(autouse=True)
def without_native_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: None)


def _random(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _ops(width: int, dtype: torch.dtype) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    weight, bias = _random(width, dtype=dtype, seed=1), _random(width, dtype=dtype, seed=2)
    return {
        "rms_norm": lambda x: op.rms_norm(x, weight, 1e-5),
        "layer_norm": lambda x: op.layer_norm(x, weight, bias, 1e-5),
        "silu_mul": op.silu_mul,
        "gelu": op.gelu,
        "relu": op.relu,
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("out_features", "in_features"), [(96, 64), (64, 192), (100, 48), (576, 1536)])
def test_linear_rows_are_the_same_for_every_number_of_rows(
    dtype: torch.dtype, out_features: int, in_features: int
) -> None:
    x = _random(64, in_features, dtype=dtype)
    weight, bias = _random(out_features, in_features, dtype=dtype, seed=1), _random(out_features, dtype=dtype, seed=2)
    full = op.linear(x, weight, bias)
    for m in range(1, 65):
        assert torch.equal(op.linear(x[64 - m :].clone(), weight, bias), full[64 - m :]), f"M = {m}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "silu_mul", "gelu", "relu"])
def test_rows_are_the_same_for_every_number_of_rows(name: str, width: int, dtype: torch.dtype) -> None:
    x = _random(64, width, dtype=dtype)
    function = _ops(width, dtype)[name]
    full = function(x)
    for m in range(1, 65):
        assert torch.equal(function(x[64 - m :].clone()), full[64 - m :]), f"M = {m}"


@pytest.mark.parametrize("num_threads", [2, 3])
def test_threads_do_not_cut_a_row_into_a_tail(num_threads: int) -> None:
    before = torch.get_num_threads()
    x = _random(301, 2 * 576, dtype=torch.float32)
    want = torch.cat([op.silu_mul(row) for row in x.split(1)])
    try:
        torch.set_num_threads(num_threads)
        assert torch.equal(op.silu_mul(x), want)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rope_rows_are_the_same_for_every_number_of_rows(dtype: torch.dtype) -> None:
    x = _random(64, 3, 16, dtype=dtype)
    angles = _random(64, 8, dtype=torch.float32, seed=1).repeat(1, 2)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    full = op.rope(x, cos, sin)
    for m in range(1, 65):
        assert torch.equal(op.rope(x[:m], cos[:m], sin[:m]), full[:m])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ops_are_close_to_their_references(dtype: torch.dtype) -> None:
    tolerance = {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 6e-2, "rtol": 2e-2}
    x, weight, bias = _random(5, 96, dtype=dtype), _random(96, dtype=dtype, seed=1), _random(96, dtype=dtype, seed=2)
    matrix = _random(32, 96, dtype=dtype, seed=3)
    angles = _random(5, 8, dtype=torch.float32, seed=4).repeat(1, 2)
    heads, cos, sin = _random(5, 6, 16, dtype=dtype), angles.cos().to(dtype), angles.sin().to(dtype)
    for name, arguments in {
        "linear": (x, matrix, bias[:32]),
        "rms_norm": (x, weight, 1e-5),
        "layer_norm": (x, weight, bias, 1e-5),
        "silu_mul": (x,),
        "rope": (heads, cos, sin),
    }.items():
        torch.testing.assert_close(getattr(op, name)(*arguments), getattr(reference, name)(*arguments), **tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("out_features", "in_features"), [(96, 64), (100, 36), (576, 1536)])
def test_a_packed_weight_gives_the_bits_of_the_plain_one(
    dtype: torch.dtype, out_features: int, in_features: int
) -> None:
    x = _random(64, in_features, dtype=dtype)
    weight, bias = _random(out_features, in_features, dtype=dtype, seed=1), _random(out_features, dtype=dtype, seed=2)
    packed = op.pack_linear(weight)
    full = op.linear(x, weight, bias)
    for m in (1, 2, 3, 15, 16, 17, 64):
        assert torch.equal(op.linear(x[:m].clone(), packed, bias), full[:m])
