"""The C++ kernels are compiled once, for every instruction set, whoever asks at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from octavo.kernels import op
from octavo.kernels.cpu import build, native
from octavo.kernels.reference import op as reference

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
