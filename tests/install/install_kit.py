"""What the install tests share: clean environments, running commands, and waiting for a server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ASK_LIMIT_S = 120


def run(*args: str | Path, **options: object) -> str:
    """Run a command to its end; its output, and a failure that shows it."""
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{args} → {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def clean_env(**extra: str) -> dict[str, str]:
    """The environment without anything that points at this checkout, at an index or at a pip configuration."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV") and not k.startswith("PIP_")}
    return {**kept, "OMP_NUM_THREADS": "1", "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, **extra}


def install(folder: Path, wheelhouse: Path, wheel: Path, extra: str) -> Path:
    """A new venv with the wheel; its bin folder."""
    venv.create(folder, with_pip=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "-q", "--find-links", wheelhouse]
    run(*pip, f"octavo{extra} @ file://{wheel}", env=clean_env())
    return folder / "bin"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ask(port: int, path: str, body: dict | None = None) -> dict:
    """GET `path`, or POST `body`; the answer's JSON.  Raises `OSError` while nothing answers or for an error status."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=ASK_LIMIT_S) as reply:
        return json.loads(reply.read() or b"{}")


def status(port: int, path: str) -> int:
    """The HTTP status of GET `path`; 0 while nothing answers."""
    try:
        ask(port, path)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0
    return 200


def until(is_so: Callable[[], bool], limit_s: float, text: Callable[[], str]) -> None:
    """Wait until `is_so`; a failure shows `text`."""
    deadline_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline_s, text()[-4000:]
        time.sleep(0.1)
