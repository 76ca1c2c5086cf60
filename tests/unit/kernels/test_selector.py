"""The selector and the self-check."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from octavo.kernels import registry
from octavo.kernels.attention import AttentionSpec
from octavo.kernels.cpu import native
from octavo.kernels.cpu.attention import TorchCpuAttention
from octavo.kernels.cpu.native_attention import CpuAttention
from octavo.kernels.reference.attention import ReferenceAttention
from octavo.kernels.self_check import determinism_check

SPEC = AttentionSpec(6, 2, 16, 16, torch.float32, torch.float32, "cpu", 0.25)


def test_auto_takes_the_first_without_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    if native.library() is not None:
        assert registry.select("auto", SPEC) is CpuAttention
    assert registry.select("auto", replace(SPEC, head_dim=24)) is TorchCpuAttention
    monkeypatch.setattr(native, "library", lambda: None)
    assert registry.select("auto", SPEC) is TorchCpuAttention
    assert registry.select("auto", replace(SPEC, dtype=torch.float16, is_deterministic=False)) is ReferenceAttention


def test_a_named_backend_is_taken() -> None:
    assert registry.select("reference", replace(SPEC, is_deterministic=False)) is ReferenceAttention


def test_a_named_backend_that_cannot_run_says_every_reason() -> None:
    with pytest.raises(registry.BackendUnavailable) as caught:
        registry.select("torch_cpu", replace(SPEC, device="cuda:0", num_heads=5))
    assert "runs on cpu, not on cuda:0" in str(caught.value)
    assert "5 heads cannot share 2 KV heads" in str(caught.value)


def test_deterministic_mode_refuses_a_backend_that_is_not() -> None:
    with pytest.raises(registry.BackendUnavailable, match="depend on the batch"):
        registry.select("reference", SPEC)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(registry.BackendUnavailable, match="torch_cpu, reference"):
        registry.select("flash", SPEC)


def test_the_self_check_passes_here() -> None:
    assert determinism_check(TorchCpuAttention, SPEC) == []


def test_the_self_check_finds_a_backend_whose_rows_vary() -> None:
    class Varying(TorchCpuAttention):
        def run(self, q, k, v, kv, out):  # type: ignore[no-untyped-def]  # the same as the base's
            super().run(q, k, v, kv, out)
            out += q.shape[0] * 1e-6

    assert any("attention" in reason for reason in determinism_check(Varying, SPEC))
