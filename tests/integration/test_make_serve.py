"""`make serve` on a terminal: it says how to call the cluster, and Ctrl-C ends it with exit code 0."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import pytest

from octavo.testing.tiny_model import write_tiny_model
from terminal import CTRL_C, Terminal

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 90.0

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def installed_venv(folder: Path) -> Path:
    """A folder that make takes for a finished environment: it runs this interpreter and this tree."""
    bin_dir = folder / "bin"
    bin_dir.mkdir(parents=True)
    for name, module in (("python", ""), ("octavo", "-m octavo.cli")):
        script = bin_dir / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n')
        script.chmod(0o755)
    for stamp in (".torch", ".worker"):
        (folder / stamp).touch()
    return folder


def test_ctrl_c_on_a_terminal_ends_make_with_0(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny")
    venv = installed_venv(tmp_path / "venv")
    flags = "--port 0 --grpc-port 0"
    terminal = Terminal(["make", "serve", f"VENV={venv}", f"MODEL={model}", f"ARGS={flags}"], ROOT)
    is_ready = terminal.read_until("Ctrl-C ends it.", time.monotonic() + LIMIT_S)
    terminal.press(CTRL_C)
    terminal.read_to_end(time.monotonic() + LIMIT_S)
    code = terminal.close()
    assert is_ready, terminal.text[-3000:]
    assert code == 0, terminal.text[-3000:]
    assert "Octavo serves" in terminal.text
