"""What the install tests share: running commands, and a cluster that is asked over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT_S = 300

Ask = Callable[[str, dict | None], dict]


def run(*args: str | Path, **options: object) -> str:
    """Run a command to its end; its output, and a failure that shows it."""
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{args} → {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@contextmanager
def served(command: list[str], port: int, **options: object) -> Iterator[Ask]:
    """Start a cluster, wait until it is ready, give a function that asks it, then end it as Ctrl-C does."""
    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
    )

    def ask(path: str, body: dict | None = None) -> dict:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as reply:
            return json.loads(reply.read() or b"{}")

    try:
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            try:
                ask("/ready")
                break
            except OSError:
                assert process.poll() is None, process.stdout.read().decode()[-4000:]
                assert time.monotonic() < deadline, "not ready in time"
                time.sleep(0.2)
        yield ask
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 0, process.stdout.read().decode()[-4000:]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
