"""A service that only speaks as one: `fake_service.py ROLE [flags]`, with its behaviour in `FAKE_ROLE`.

Modes: ok | bad (says why and ends) | mute (ends at once) | slow (never ready) | stubborn (ignores SIGTERM) |
parent (has a child of its own).  Appends `EVENT ROLE PID ADDRESS` to the file `FAKE_LOG`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

from octavo.cli.lifeline import tie_to_parent
from octavo.obs.notify import Notifier

PORT_FLAGS = {"router": "--router-port=", "worker": "--worker-port=", "gateway": "--port="}


def main() -> int:
    role = sys.argv[1]
    tie_to_parent(os.environ)
    mode = os.environ.get(f"FAKE_{role.upper()}", "ok")
    notifier = Notifier.from_env()
    if mode == "bad":
        print("about to fail")
        notifier.failed("model: got 'nope'; there is no such model")
        return 2
    if mode == "mute":
        print("the last words")
        return 3
    flag = PORT_FLAGS[role]
    port = next((int(arg[len(flag) :]) for arg in sys.argv if arg.startswith(flag)), 0)
    server = socket.create_server(("127.0.0.1", port), reuse_port=False)
    address = f"127.0.0.1:{server.getsockname()[1]}"
    record("start", role, address)
    stopped: list[int] = []
    reader, writer = os.pipe()

    def on_signal(number: int, frame: object) -> None:
        stopped.append(number)
        if mode != "stubborn":
            os.write(writer, b"x")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    kind = "http" if role == "gateway" else "grpc"
    notifier.listening(**{kind: address})
    notifier.progress("loading", 0.5)
    if mode == "parent":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if mode != "slow":
        notifier.ready()
    os.read(reader, 1)
    record("stop", role, address)
    return 0


def record(event: str, role: str, address: str) -> None:
    with open(os.environ["FAKE_LOG"], "a", encoding="utf-8") as log:
        log.write(f"{event} {role} {os.getpid()} {address}\n")


if __name__ == "__main__":
    sys.exit(main())
