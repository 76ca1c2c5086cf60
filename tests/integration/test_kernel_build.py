"""The C++ kernels are compiled once, for every instruction set, whoever asks at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from octavo.kernels import op
from octavo.kernels.attention import AttentionBackend, AttentionSpec
from octavo.kernels.cpu import build, native
from octavo.kernels.cpu.native_attention import CpuAttention
from octavo.kernels.reference import op as reference
from octavo.kernels.reference.attention import ReferenceAttention
from octavo.kernels.self_check import make_batch

pytestmark = pytest.mark.skipif(native.library() is None, reason="no C++ compiler here")


def _random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("isa", sorted(build.ISA_FLAGS))
def test_every_instruction_set_computes_the_same_product(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    order = list(build.ISA_FLAGS)
    if order.index(isa) < order.index(build.detect_isa()):
        pytest.skip(f"this processor has no {isa}")
    x, weight = _random(13, 96), _random(70, 96, dtype=torch.bfloat16, seed=1)
    norm = _random(96, seed=2)
    found = native.load_library(isa)
    monkeypatch.setattr(native, "library", lambda: found)
    got = op.linear(x, native.pack(weight))
    torch.testing.assert_close(got, x @ weight.float().T, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(op.rms_norm(x, norm, 1e-5), reference.rms_norm(x, norm, 1e-5))


@pytest.mark.parametrize("isa", sorted(build.ISA_FLAGS))
def test_every_instruction_set_attends_alike(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    order = list(build.ISA_FLAGS)
    if order.index(isa) < order.index(build.detect_isa()):
        pytest.skip(f"this processor has no {isa}")
    spec = AttentionSpec(6, 2, 48, 16, torch.float32, torch.bfloat16, "cpu", 0.2)
    q, k, v = (_random(300, heads, 48, seed=seed) for seed, heads in enumerate((6, 2, 2)))
    found = native.load_library(isa)
    monkeypatch.setattr(native, "library", lambda: found)

    def run(backend: AttentionBackend, cuts: list[int]) -> torch.Tensor:
        kv, out = torch.zeros(19, 2, 2, 16, 48, dtype=torch.bfloat16), torch.empty_like(q)
        for start, end in zip([0, *cuts], [*cuts, 300], strict=True):
            backend.plan(make_batch([list(range(19))], [end - start], [end], 16))
            backend.run(q[start:end], k[start:end], v[start:end], kv, out[start:end])
        return out

    whole = run(CpuAttention(spec), [])
    torch.testing.assert_close(whole, run(ReferenceAttention(spec), []), atol=1e-5, rtol=1e-4)
    assert torch.equal(run(CpuAttention(spec), [1, 100, 257, 299]), whole)


def test_a_broken_compiler_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'cannot do this' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    with pytest.raises(build.BuildError, match="cannot do this"):
        build.compiled_library()
    assert not list((tmp_path / "kernels").glob("*.so"))


def test_processes_that_ask_at_once_share_one_library(tmp_path: Path) -> None:
    code = "from octavo.kernels.cpu.build import compiled_library; print(compiled_library('portable'))"
    env = {**os.environ, "OCTAVO_CACHE": str(tmp_path)}
    asking = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    answers = {process.communicate(timeout=240)[0].strip() for process in asking}
    assert all(process.returncode == 0 for process in asking)
    libraries = list((tmp_path / "kernels").glob("*.so"))
    assert answers == {str(path) for path in libraries}
    assert len(libraries) == 1
    assert not list((tmp_path / "kernels").glob("*.tmp"))
