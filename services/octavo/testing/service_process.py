"""`ServiceProcess`: one service of a test cluster, with its notices, its log, and a check that nothing remains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from octavo.obs.notify import NOTIFY_FD_ENV, Failed, Listening, Ready, parse_notice


class ServiceProcess:
    """`octavo NAME ARGS…` in a session of its own; output goes to `log_path`."""

    def __init__(self, label: str, arguments: Sequence[str], env: Mapping[str, str], log_path: Path) -> None:
        self.label = label
        self.log_path = log_path
        self.addresses: dict[str, str] = {}
        self.failure = ""
        self._changed = threading.Condition()
        self._is_ready = False
        reader, writer = os.pipe()
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "octavo.cli", *arguments],
                env={**os.environ, **env, NOTIFY_FD_ENV: str(writer)},
                pass_fds=(writer,),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        os.close(writer)
        self._listener = threading.Thread(target=self._listen, args=(reader,), daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait_listening(self, timeout_s: float) -> dict[str, str]:
        self._wait(lambda: bool(self.addresses), "listening", timeout_s)
        return self.addresses

    def wait_ready(self, timeout_s: float) -> None:
        self._wait(lambda: self._is_ready, "ready", timeout_s)

    def send(self, number: signal.Signals) -> None:
        """Signal the service's own process."""
        if self.is_alive:
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        """The exit code; raises `subprocess.TimeoutExpired`."""
        code = self._process.wait(timeout_s)
        self._listener.join(timeout_s)
        return code

    def members(self) -> list[psutil.Process]:
        """Live processes of the service's session: itself, its engine, its ranks."""
        found = []
        for process in psutil.process_iter():
            try:
                is_member = os.getsid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE
            except (OSError, psutil.Error):
                continue
            if is_member:
                found.append(process)
        return found

    def wait_gone(self, timeout_s: float) -> list[psutil.Process]:
        """Wait until nothing of the service runs; returns what still does."""
        end_s = time.monotonic() + timeout_s
        while (left := self.members()) and time.monotonic() < end_s:
            time.sleep(0.05)
        return left

    def end(self) -> None:
        """Kill whatever is left."""
        for process in self.members():
            try:
                process.kill()
            except psutil.Error:
                continue
        if self.is_alive:
            self._process.kill()
        self._process.wait(10)

    def tail(self, num_lines: int = 30) -> str:
        lines = self.log_path.read_text(errors="replace").splitlines()[-num_lines:]
        return "\n".join(f"[{self.label}] {line}" for line in lines)

    def _wait(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        with self._changed:
            while not condition():
                left_s = end_s - time.monotonic()
                if self.failure or not self.is_alive or left_s <= 0:
                    why = self.failure or ("it ended" if not self.is_alive else f"not within {timeout_s:g} s")
                    raise RuntimeError(f"{self.label} is not {what}: {why}\n{self.tail()}")
                self._changed.wait(min(left_s, 0.2))

    def _listen(self, fd: int) -> None:
        with open(fd, "rb") as notices:
            for line in notices:
                notice = parse_notice(line)
                with self._changed:
                    match notice:
                        case Listening(addresses=addresses):
                            self.addresses = addresses
                        case Ready():
                            self._is_ready = True
                        case Failed(message=message):
                            self.failure = message
                    self._changed.notify_all()
