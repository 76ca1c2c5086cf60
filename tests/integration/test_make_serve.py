"""`make serve` on a terminal: it says how to call the cluster, and Ctrl-C ends it with exit code 0."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import shutil
import sys
import time
from pathlib import Path

import pytest

from octavo.testing.tiny_model import write_tiny_model

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


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, argv: list[str]) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execvp(argv[0], argv)
        self.text = ""

    def read_until(self, words: str, deadline_s: float) -> bool:
        """Whether `words` came before the end of the output and the deadline."""
        while words not in self.text and time.monotonic() < deadline_s:
            readable, _, _ = select.select([self.fd], [], [], 0.5)
            if not readable:
                continue
            with contextlib.suppress(OSError):
                chunk = os.read(self.fd, 65536)
                if chunk:
                    self.text += chunk.decode(errors="replace")
                    continue
            return False
        return words in self.text

    def close(self) -> int:
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_ctrl_c_on_a_terminal_ends_make_with_0(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny")
    venv = installed_venv(tmp_path / "venv")
    flags = "--port 0 --grpc-port 0"
    terminal = Terminal(["make", "serve", f"VENV={venv}", f"MODEL={model}", f"ARGS={flags}"])
    is_ready = terminal.read_until("Ctrl-C ends it.", time.monotonic() + LIMIT_S)
    os.write(terminal.fd, b"\x03")
    terminal.read_until("\0", time.monotonic() + LIMIT_S)
    code = terminal.close()
    assert is_ready, terminal.text[-3000:]
    assert code == 0, terminal.text[-3000:]
    assert "Octavo serves" in terminal.text
