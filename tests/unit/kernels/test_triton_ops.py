"""Triton's layer ops, slot kernels and sampler against references."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
import torch

from gpu_kit import DEVICE, DTYPES, TOLERANCE, relative_error
from octavo.engine.sampling.sampler import sample
from octavo.engine.sampling.state import SamplerState
from octavo.kernels.reference import op as reference
from octavo.kernels.triton import layer, skinny
from octavo.kernels.triton.sample import SampleWorkspace, sample_rows
from octavo.kernels.triton.slot import apply_updates, gather_inputs
from octavo.sampling_params import SamplingParams


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [96, 576])
def test_residual_and_norm(width: int, dtype: torch.dtype) -> None:
    x, residual = torch.randn(2, 5, width, device=DEVICE).to(dtype)
    weight = torch.rand(width, device=DEVICE).to(dtype)
    normed, stream = layer.add_rms_norm(x, residual.clone(), weight, 1e-5)
    assert relative_error(stream, x.double() + residual.double()) < TOLERANCE[dtype]
    assert relative_error(normed, reference.rms_norm((x + residual).double(), weight.double(), 1e-5)) < TOLERANCE[dtype]
    alone, same = layer.add_rms_norm(x, None, weight, 1e-5)
    assert same is x
    assert relative_error(alone, reference.rms_norm(x, weight, 1e-5)) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_silu_times_up(dtype: torch.dtype) -> None:
    gate_up = torch.randn(3, 2 * 1100, device=DEVICE).to(dtype) * 3
    assert relative_error(layer.silu_mul(gate_up), reference.silu_mul(gate_up.float())) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("num_rows", [1, 2, 5, 16])
def test_products_of_few_rows_with_what_is_around_them(num_rows: int, dtype: torch.dtype) -> None:
    width, num_outputs = 512, 40

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=DEVICE).to(dtype) * 0.5

    x, weight, bias, residual = draw(num_rows, width), draw(2 * num_outputs, width), draw(num_outputs), None
    norm = torch.rand(width, device=DEVICE).to(dtype) + 0.5
    for has_norm, is_gated, has_bias, has_residual in [
        (False, False, False, True),
        (False, False, True, False),
        (True, False, True, False),
        (True, True, False, False),
    ]:
        w = weight if is_gated else weight[:num_outputs]
        residual = draw(num_rows, num_outputs) if has_residual else None
        if not skinny.can_run(x, w, bias if has_bias else None, has_norm=has_norm, is_gated=is_gated):
            assert num_rows > 2
            assert has_norm
            continue
        got = skinny.fused_linear(
            x,
            w,
            bias if has_bias else None,
            norm=norm if has_norm else None,
            eps=1e-6,
            residual=residual,
            is_gated=is_gated,
        )
        want = x.double()
        if has_norm:
            want = want * (want.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * norm.double()
        want = want @ w.double().T
        if is_gated:
            want = torch.nn.functional.silu(want[:, :num_outputs]) * want[:, num_outputs:]
        for part in (bias if has_bias else None, residual):
            if part is not None:
                want = want + part.double()
        assert relative_error(got, want) < TOLERANCE[dtype]


def test_updates_go_where_they_should() -> None:
    state = torch.arange(1000, dtype=torch.int32, device=DEVICE)
    index = torch.randperm(1000)[:300]
    updates = torch.stack((index, -index - 1)).to(DEVICE, torch.int32)
    apply_updates(state, updates)
    want = torch.arange(1000)
    want[index] = -index - 1
    assert torch.equal(state.cpu().long(), want)


def test_inputs_come_from_the_host_or_from_the_slot() -> None:
    rows = torch.tensor([[2, 0, 1], [33, 5, 16], [-1, 71, -1]], dtype=torch.int32, device=DEVICE)
    last = torch.tensor([50, 51, 52], dtype=torch.int32, device=DEVICE)
    table = torch.tensor([[9, 8, 7], [6, 5, 4], [3, 2, 1]], dtype=torch.int32, device=DEVICE)
    token_ids, slots = torch.full((2, 3), -5, dtype=torch.int32, device=DEVICE)
    gather_inputs(rows, last, table, 16, token_ids, slots)
    assert token_ids.tolist() == [52, 71, 51]
    assert slots.tolist() == [1 * 16 + 1, 9 * 16 + 5, 5 * 16]


class Sampled:
    """`sample_rows` on a few rows, each in a slot of its own, in reverse order."""

    def __init__(self, logits: torch.Tensor, params: list[SamplingParams], positions: list[int]) -> None:
        num_rows, vocab = logits.shape
        settings = np.zeros((4, num_rows + 1), dtype=np.uint32)
        slots = list(reversed(range(num_rows)))
        for slot, p in zip(slots, params, strict=True):
            if not p.is_greedy:
                settings[0, slot] = np.array([p.temperature], dtype=np.float32).view(np.uint32)[0]
            seed = p.seed or 0
            settings[1:, slot] = seed & 0xFFFFFFFF, seed >> 32, slot
        self.last, self.chosen = torch.full((2, num_rows + 1), -9, dtype=torch.int32, device=DEVICE)
        rows = torch.tensor([slots, positions], dtype=torch.int32, device=DEVICE)
        on_device = torch.from_numpy(settings.view(np.int32)).to(DEVICE)
        sample_rows(logits, rows, on_device, self.last, self.chosen, SampleWorkspace(num_rows, vocab, DEVICE))
        states = [
            SamplerState(p, [0] * (at + 1), [], slot, [], vocab)
            for p, at, slot in zip(params, positions, slots, strict=True)
        ]
        self.want = [c.token_id for c in sample(logits.cpu().numpy(), states)]
        self.slots = slots


def test_tokens_equal_the_host_sampler_bit_for_bit() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    logits = (torch.randn(8, 5003, generator=torch.Generator().manual_seed(seed)) * 3).to(DEVICE)
    logits[5, 100:4000] = float("-inf")
    logits[6] = logits[6].round()
    temperatures = [0.0, 0.6, 1.0, 2.0, 0.3, 1.3, 0.0, 0.7]
    params = [SamplingParams(temperature=t, seed=secrets.randbits(64)) for t in temperatures]
    found = Sampled(logits, params, [5, 9, 100, 3, 4, 50, 0, 70000])
    assert found.chosen[:8].tolist() == found.want
    assert [found.last[slot].item() for slot in found.slots] == found.want


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_gets_no_token(value: float) -> None:
    logits = torch.randn(3, 2500, device=DEVICE)
    logits[1, 2400] = value
    found = Sampled(logits, [SamplingParams(temperature=t, seed=1) for t in (0.0, 0.0, 1.0)], [1, 2, 3])
    assert found.chosen[:3].tolist() == found.want
    assert found.want[1] == -1
