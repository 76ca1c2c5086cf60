"""`Terminal`: a command on a terminal of its own, as a person has it."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

CTRL_C = b"\x03"
LOOK_EVERY_S = 0.5


class Terminal:
    """Runs `argv` in `cwd` on a new terminal, in a session of its own; `text` is what it showed so far."""

    def __init__(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None) -> None:
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(cwd)
                os.execvpe(argv[0], list(argv), dict(os.environ if env is None else env))
            finally:
                os._exit(127)

    def press(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def read_until(self, words: str, deadline_s: float) -> bool:
        """Whether `words` came before the end of the output and before `time.monotonic()` passes `deadline_s`."""
        while words not in self.text and time.monotonic() < deadline_s:
            readable, _, _ = select.select([self.fd], [], [], LOOK_EVERY_S)
            if not readable:
                continue
            with contextlib.suppress(OSError):
                chunk = os.read(self.fd, 65536)
                if chunk:
                    self.text += chunk.decode(errors="replace")
                    continue
            return False
        return words in self.text

    def read_to_end(self, deadline_s: float) -> None:
        """Read until every process has closed the terminal, or until the deadline."""
        self.read_until("\0", deadline_s)

    def close(self) -> int:
        """Hang up, which ends what still runs there; the exit code, negative for a signal."""
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
