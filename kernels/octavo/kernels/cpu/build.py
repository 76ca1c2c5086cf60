"""Compiles `csrc` once per machine: a shared library in the cache, keyed by source, compiler and processor."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent / "csrc"
MAIN = "octavo.cpp"
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-pthread", "-ffp-contract=off", "-fno-math-errno")
COMPILE_LIMIT_S = 240

ISA_FLAGS = {
    "avx512": ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mavx2", "-mprefer-vector-width=512"),
    "avx2": ("-mavx2", "-mfma"),
    "portable": (),
}
_ISA_NEEDS = {"avx512": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "fma"}, "avx2": {"avx2", "fma"}}


class BuildError(RuntimeError):
    """The kernels cannot be compiled here; the message says why."""


def detect_isa() -> str:
    """The best instruction set of `ISA_FLAGS` that this processor has."""
    has = _processor_flags()
    return next((isa for isa, needs in _ISA_NEEDS.items() if needs <= has), "portable")


def _processor_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), set())


def source_digest() -> str:
    """16 hex digits over the sources and the flags: what the bits of results depend on, beside the ISA."""
    digest = hashlib.sha256(repr((FLAGS, ISA_FLAGS)).encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def cache_dir() -> Path:
    """Where libraries are kept: `kernels` in `OCTAVO_CACHE`, else in `~/.cache/octavo`."""
    given = os.environ.get("OCTAVO_CACHE", "")
    return (Path(given) if given else Path.home() / ".cache" / "octavo") / "kernels"


def compiled_library(isa: str = "") -> Path:
    """The library for `isa` (default: the best one here), compiled when the cache has none.

    Safe to call from several processes: one compiles, the others wait for it.  Raises `BuildError` without a compiler
    or when it fails.
    """
    isa = isa or detect_isa()
    compiler = os.environ.get("CXX") or next((c for c in ("g++", "clang++", "c++") if shutil.which(c)), "")
    path = shutil.which(compiler) if compiler else None
    if path is None:
        raise BuildError(f"no C++ compiler found ({compiler or 'g++, clang++ or c++'})")
    stat = os.stat(os.path.realpath(path))
    key = f"{os.path.realpath(path)}:{stat.st_size}:{stat.st_mtime_ns}:{platform.machine()}:{platform.libc_ver()}"
    name = f"octavo-{isa}-{source_digest()}-{hashlib.sha256(key.encode()).hexdigest()[:8]}.so"
    target = cache_dir() / name
    if not target.exists():
        _compile(path, isa, target)
    return target


def _compile(compiler: str, isa: str, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if target.exists():
                return
            partial = target.with_suffix(f".{os.getpid()}.tmp")
            command = [compiler, *FLAGS, *ISA_FLAGS[isa], "-o", str(partial), str(SOURCES / MAIN)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_LIMIT_S, check=False)
            if done.returncode:
                raise BuildError(f"{compiler} failed: {done.stderr.strip()[-2000:]}")
            os.replace(partial, target)
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"compiling the kernels failed: {error}") from error
