"""The C++ kernels: close to their references, rows independent of the batch and of the threads."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest
import torch

from octavo.kernels import op
from octavo.kernels.cpu import native
from octavo.kernels.reference import op as reference

pytestmark = pytest.mark.skipif(native.library() is None, reason="no C++ compiler here")

DTYPES = [torch.float32, torch.bfloat16]
SHAPES = [(96, 64), (100, 48), (7, 2), (576, 1536)]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    yield
    native.set_num_threads(torch.get_num_threads())


def _random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_linear_is_close_to_its_reference(n: int, k: int, dtype: torch.dtype) -> None:
    x, bias = _random(5, k), _random(n, seed=2)
    weight = _random(n, k, dtype=dtype, seed=1)
    packed = native.pack(weight)
    want = reference.linear(x.double(), weight.double(), bias.double())
    torch.testing.assert_close(op.linear(x, packed, bias), want.float(), atol=1e-6 * k, rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_linear_rows_are_the_same_for_every_number_of_rows_and_threads(n: int, k: int, dtype: torch.dtype) -> None:
    x, packed, bias = _random(200, k), native.pack(_random(n, k, dtype=dtype, seed=1)), _random(n, seed=2)
    full = op.linear(x, packed, bias)
    for num_threads in (1, 2, 3):
        native.set_num_threads(num_threads)
        for m in (*range(1, 65), 97, 200):
            assert torch.equal(op.linear(x[200 - m :], packed, bias), full[200 - m :]), f"M = {m}"


def test_a_bfloat16_weight_gives_the_bits_of_the_same_floats() -> None:
    x, weight = _random(33, 192), _random(160, 192, dtype=torch.bfloat16, seed=1)
    assert torch.equal(op.linear(x, native.pack(weight)), op.linear(x, native.pack(weight.float())))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [64, 100])
def test_gated_linear(width: int, dtype: torch.dtype) -> None:
    x, weight = _random(64, 96), _random(2 * width, 96, dtype=dtype, seed=1)
    bias, packed = _random(2 * width, seed=2), native.pack(weight)
    got = op.linear_silu_mul(x, packed, bias)
    want = reference.silu_mul(reference.linear(x, weight, bias))
    torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
    for m in range(1, 65):
        assert torch.equal(op.linear_silu_mul(x[:m], packed, bias), got[:m])


def test_norm_and_rope_are_close_to_their_references_and_keep_rows_apart() -> None:
    x, weight = _random(64, 96), _random(96, seed=1)
    heads = _random(64, 6, 32, seed=2)
    angles = _random(64, 16, seed=3).repeat(1, 2)
    cos, sin = angles.cos(), angles.sin()
    norm, turned = op.rms_norm(x, weight, 1e-5), op.rope_(heads.clone(), cos, sin)
    torch.testing.assert_close(norm, reference.rms_norm(x, weight, 1e-5), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(turned, reference.rope(heads, cos, sin), atol=1e-5, rtol=1e-5)
    residual = _random(64, 96, seed=4)
    added, stream = op.add_rms_norm(x, residual.clone(), weight, 1e-5)
    assert torch.equal(stream, residual + x)
    assert torch.equal(added, op.rms_norm(residual + x, weight, 1e-5))
    for m in range(1, 65):
        assert torch.equal(op.rms_norm(x[:m], weight, 1e-5), norm[:m])
        assert torch.equal(op.add_rms_norm(x[:m], residual[:m].clone(), weight, 1e-5)[0], added[:m])
        assert torch.equal(op.rope_(heads[:m].clone(), cos[:m], sin[:m]), turned[:m])


def test_extreme_gates_stay_finite_and_nan_stays_nan() -> None:
    packed = native.pack(torch.eye(64).repeat(2, 1))
    x = torch.tensor([-1e4, -90.0, -87.5, 0.0, 88.5, 1e4, float("nan"), 1.0]).repeat(8)[None]
    got = op.linear_silu_mul(x[:, :64].nan_to_num(0.0), packed, None)
    torch.testing.assert_close(got, torch.nn.functional.silu(x.nan_to_num(0.0)) * x.nan_to_num(0.0))
    assert op.linear_silu_mul(x, packed, None).isnan().all(), "a row with NaN is NaN through a product"


def test_without_a_compiler_one_warning_and_torch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    native.library.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            assert native.library() is None
            assert native.library() is None
        assert len(caplog.records) == 1
        assert "no C++ compiler" in caplog.text
        assert op.compute_dtype(torch.bfloat16, "cpu") == torch.bfloat16
        assert isinstance(op.pack_linear(torch.zeros(4, 4)), torch.Tensor)
    finally:
        monkeypatch.undo()
        native.library.cache_clear()


def test_tasks_are_all_done_once_by_any_number_of_threads() -> None:
    """Many short calls after each other: a thread that comes late must not touch the next call's tasks."""
    rng = random.Random(3)
    x, packed = _random(40, 64), native.pack(_random(320, 64, seed=1))
    want = op.linear(x, packed)
    native.set_num_threads(4)
    for _ in range(300):
        m = rng.randint(1, 40)
        assert torch.equal(op.linear(x[:m], packed), want[:m])
