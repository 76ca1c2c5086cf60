"""The wheel with the worker extra serves from any folder."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from install_kit import ask, clean_env, free_port, install, status, until

LIMIT_S = 120.0


def test_worker_install_serves_from_anywhere(wheelhouse: Path, wheel: Path, tiny_model: Path, tmp_path: Path) -> None:
    bin_dir = install(tmp_path / "venv", wheelhouse, wheel, "[worker]")
    port, log = free_port(), tmp_path / "up.log"
    command = [str(bin_dir / "octavo"), "up", str(tiny_model), "--served-model-name", "tiny"]
    command += ["--port", str(port), "--grpc-port", "0"]
    with log.open("w") as out:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=clean_env(), start_new_session=True, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        until(lambda: process.poll() is not None or status(port, "/ready") == 200, LIMIT_S, log.read_text)
        body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        assert ask(port, "/v1/chat/completions", body)["usage"]["completion_tokens"] >= 1
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(LIMIT_S) == 0, log.read_text()[-4000:]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
