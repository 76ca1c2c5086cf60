"""Downloads one wheel with pip, in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from octavo.errors import Unavailable

TIMEOUT_S = 1800.0
LOOK_EVERY_S = 0.25


def download_wheel(requirement: str, folder: Path, num_bytes: int, progress: Callable[[float], None]) -> Path:
    """Put the wheel of `requirement` (pinned, without its dependencies) into `folder` and return its path.

    pip's own configuration (index, proxy, certificates) applies.  `num_bytes` is the wheel's size, for the progress:
    pip works inside `folder`, whose growth is watched, since its own progress is for terminals.  Raises `Unavailable`
    when pip is missing, fails, or takes too long.
    """
    if importlib.util.find_spec("pip") is None:
        raise _failed(f"{sys.executable} has no pip; run `{sys.executable} -m ensurepip`")
    target = folder / "wheel"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input", "--quiet"]
    command += ["--no-cache-dir", "--disable-pip-version-check", "--dest", str(target), requirement]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env=os.environ | {"TMPDIR": str(folder)}
        )
        try:
            _watch(process, requirement, folder, num_bytes, progress)
        finally:
            process.kill()
            process.wait()
        errors.seek(0)
        lines = [line.strip() for line in errors if line.strip()]
    wheels = list(target.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        last = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "")
        reason = last or f"it ended with status {process.returncode} and {len(wheels)} wheels"
        raise _failed(f"pip could not get {requirement}: {reason}")
    return wheels[0]


def _watch(
    process: subprocess.Popen[bytes], requirement: str, folder: Path, num_bytes: int, progress: Callable[[float], None]
) -> None:
    """Report progress until pip ends."""
    limit_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            process.wait(LOOK_EVERY_S)
            return
        except subprocess.TimeoutExpired:
            progress(min(1.0, _size(folder) / num_bytes))
        if time.monotonic() > limit_s:
            raise _failed(f"pip took over {TIMEOUT_S:.0f} s to get {requirement}")


def _size(folder: Path) -> int:
    """Bytes of the largest file under `folder`; files come and go while pip works."""
    sizes = [0]
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(base, name)).st_size)
            except FileNotFoundError:
                continue
    return max(sizes)


def _failed(reason: str) -> Unavailable:
    return Unavailable(f"model: {reason}; or give a local .gguf file or folder as MODEL", param="model")
