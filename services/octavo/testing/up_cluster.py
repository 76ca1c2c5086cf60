"""`UpCluster`: a real cluster for tests, started by `octavo up` in a process group of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import psutil

from octavo.obs.notify import NOTIFY_FD_ENV, Failed, Listening, Ready, parse_notice

START_LIMIT_S = 120.0
STOP_LIMIT_S = 60.0


class ClusterFailed(Exception):
    """`octavo up` ended, or was not ready in time; shows what it said."""


class UpCluster:
    """Starts `octavo up MODEL FLAGS…` on free ports (unless `--port` is given) and waits until it is ready.

    `http` and `grpc` are the gateway's addresses as `host:port`.  Use as a context manager: at its end the cluster gets
    SIGINT, as from a terminal, and whatever is left after `STOP_LIMIT_S` is killed.
    """

    def __init__(
        self,
        model: str | Path,
        *flags: str,
        env: Mapping[str, str] | None = None,
        start_limit_s: float = START_LIMIT_S,
    ) -> None:
        port = [] if any(flag.startswith("--port") for flag in flags) else ["--port=0", "--grpc-port=0"]
        self._output = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - lives as long as the cluster
        reader, writer = os.pipe()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "octavo.cli", "up", str(model), *port, *flags],
                env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {}), NOTIFY_FD_ENV: str(writer)},
                pass_fds=(writer,),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                start_new_session=True,
            )
        finally:
            os.close(writer)
        self.http = self.grpc = ""
        try:
            self._wait_until_ready(reader, start_limit_s)
        except BaseException:
            self.close()
            raise
        finally:
            os.close(reader)

    def __enter__(self) -> UpCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"http://{self.http}"

    def output(self) -> str:
        """What the cluster printed so far."""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0).decode(errors="replace")

    def get(self, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = 60.0) -> Any:
        """GET `path`, or POST `body`; the JSON of the answer.  Raises `urllib.error.HTTPError` for an error status."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout_s) as reply:
            return json.loads(reply.read())

    def processes(self, role: str = "") -> list[psutil.Process]:
        """The living processes of the group; with `role`, the services of that role."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            command = process.info["cmdline"] or []
            is_of_role = not role or command[1:4] == ["-m", "octavo.cli", role]
            if is_of_role and _is_in_group(process, self.process.pid):
                found.append(process)
        return found

    def send(self, number: signal.Signals = signal.SIGINT) -> None:
        """Signal the whole group, as a terminal does on Ctrl-C."""
        os.killpg(self.process.pid, number)

    def stop(self, limit_s: float = STOP_LIMIT_S) -> int:
        """End as on Ctrl-C; the exit code of `octavo up`."""
        if self.process.poll() is None:
            self.send()
        return self.process.wait(limit_s)

    def close(self) -> None:
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            raise ClusterFailed(f"did not end within {STOP_LIMIT_S:g} s:\n{self.output()[-4000:]}") from None
        finally:
            for process in self.processes():
                process.kill()
            self.process.wait()
            self._output.close()

    def _wait_until_ready(self, reader: int, limit_s: float) -> None:
        os.set_blocking(reader, False)
        deadline_s = time.monotonic() + limit_s
        pending = b""
        while time.monotonic() < deadline_s:
            try:
                chunk = os.read(reader, 65536)
            except BlockingIOError:
                time.sleep(0.02)
                continue
            if not chunk:
                break
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                if self._hear(line):
                    return
        state = f"exit code {self.process.wait(5)}" if self.process.poll() is not None else f"no end in {limit_s:g} s"
        raise ClusterFailed(f"the cluster is not ready ({state}):\n{self.output()[-4000:]}")

    def _hear(self, line: bytes) -> bool:
        """Take a notice in; whether it says that the cluster is ready."""
        try:
            notice = parse_notice(line)
        except msgspec.MsgspecError:
            return False
        if isinstance(notice, Listening):
            self.http = notice.addresses.get("http", self.http)
            self.grpc = notice.addresses.get("grpc", self.grpc)
        if isinstance(notice, Failed):
            self.process.wait(STOP_LIMIT_S)
            raise ClusterFailed(f"{notice.message}\n{self.output()[-4000:]}")
        return isinstance(notice, Ready)


def _is_in_group(process: psutil.Process, group: int) -> bool:
    try:
        return os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
