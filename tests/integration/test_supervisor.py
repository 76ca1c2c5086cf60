"""The supervisor of `octavo up` over fake services: order, restarts, failures, signals, and that nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

RUNNER = Path(__file__).with_name("fake_cluster.py")
LIMIT_S = 30.0


class Cluster:
    """A running supervisor: what it printed, what its services recorded."""

    def __init__(self, tmp: Path, argv: list[str], **modes: str) -> None:
        self.log = tmp / "events"
        self.log.touch()
        env = {**os.environ, "FAKE_LOG": str(self.log), "PYTHONUNBUFFERED": "1"}
        env |= {f"FAKE_{role.upper()}": mode for role, mode in modes.items()}
        self.out = (tmp / "out").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, str(RUNNER), "m", *argv], env=env, stdout=self.out, stderr=self.out, start_new_session=True
        )

    def text(self) -> str:
        return Path(self.out.name).read_text()

    def events(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()]

    def pids(self, role: str) -> list[int]:
        return [int(pid) for event, who, pid, _ in self.events() if (event, who) == ("start", role)]

    def until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not is_so():
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.02)

    def until_ready(self) -> None:
        self.until(lambda: "READY" in self.text())

    def end(self, number: int = signal.SIGINT) -> int:
        """Signal the whole group, as a terminal does on Ctrl-C."""
        os.killpg(self.process.pid, number)
        return self.process.wait(LIMIT_S)

    def left(self) -> list[psutil.Process]:
        return [p for p in psutil.process_iter() if _group(p.pid) == self.process.pid]


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    started: list[Cluster] = []

    def begin(*argv: str, **modes: str) -> Cluster:
        started.append(Cluster(tmp_path, list(argv), **modes))
        return started[-1]

    yield begin
    for cluster in started:
        if cluster.process.poll() is None:
            os.killpg(cluster.process.pid, signal.SIGKILL)
            cluster.process.wait()
        cluster.out.close()


Start = Callable[..., Cluster]


def test_ctrl_c_ends_gateway_then_workers_then_router(start: Start) -> None:
    cluster = start("--workers", "2", gateway="parent")
    cluster.until_ready()
    started = [who for _, who, *_ in cluster.events()]
    assert started[0] == "router"
    assert sorted(started[1:]) == ["gateway", "worker", "worker"]
    assert cluster.end(signal.SIGINT) == 0
    assert [who for event, who, *_ in cluster.events() if event == "stop"] == ["gateway", "worker", "worker", "router"]
    assert cluster.left() == []


def test_sigterm_to_the_supervisor_alone_does_the_same(start: Start) -> None:
    cluster = start()
    cluster.until_ready()
    cluster.process.send_signal(signal.SIGTERM)
    assert cluster.process.wait(LIMIT_S) == 0
    assert [who for event, who, *_ in cluster.events() if event == "stop"] == ["gateway", "worker", "router"]
    assert cluster.left() == []


@pytest.mark.parametrize("role", ["router", "worker", "gateway"])
def test_a_killed_service_comes_back_on_its_port(start: Start, role: str) -> None:
    cluster = start(worker="parent")
    cluster.until_ready()
    os.kill(cluster.pids(role)[0], signal.SIGKILL)
    cluster.until(lambda: f"{role} is ready again" in cluster.text())
    first, second = [address for event, who, _, address in cluster.events() if (event, who) == ("start", role)]
    assert first == second
    assert f"{role} died (killed by signal 9); starting it again in 0.5 s" in cluster.text()
    num_left = {p.pid for p in cluster.left()}
    assert len(num_left) == 5  # supervisor, three services, the worker's own child: the dead worker's is gone
    assert cluster.end() == 0
    assert cluster.left() == []


def test_no_restart_ends_everything_with_1(start: Start) -> None:
    cluster = start("--no-restart")
    cluster.until_ready()
    os.kill(cluster.pids("worker")[0], signal.SIGKILL)
    assert cluster.process.wait(LIMIT_S) == 1
    assert "FAILED worker ended (killed by signal 9)" in cluster.text()
    assert cluster.left() == []


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        ({"worker": "bad"}, "FAILED worker: model: got 'nope'; there is no such model"),
        ({"gateway": "mute"}, "FAILED gateway ended (exit code 3); its last lines:\n  the last words"),
        ({"router": "mute"}, "FAILED router ended (exit code 3)"),
    ],
)
def test_a_service_that_cannot_start_ends_everything(start: Start, modes: dict[str, str], message: str) -> None:
    cluster = start(**modes)
    assert cluster.process.wait(LIMIT_S) == 1
    assert message in cluster.text()
    assert cluster.left() == []


def test_the_limit_of_the_start(start: Start) -> None:
    cluster = start("--startup-timeout-s", "1.5", worker="slow")
    assert cluster.process.wait(LIMIT_S) == 1
    assert "FAILED not ready within --startup-timeout-s 1.5: worker" in cluster.text()
    assert cluster.left() == []


def test_ctrl_c_during_the_start(start: Start) -> None:
    cluster = start(worker="slow")
    cluster.until(lambda: bool(cluster.pids("worker")))
    assert cluster.end() == 0
    assert cluster.left() == []


def test_a_second_signal_kills_at_once(start: Start) -> None:
    cluster = start(gateway="stubborn")
    cluster.until_ready()
    os.killpg(cluster.process.pid, signal.SIGINT)
    cluster.until(lambda: "a second signal ends everything" in cluster.text())
    began = time.monotonic()
    assert cluster.end() == 1
    assert time.monotonic() - began < 5
    assert cluster.left() == []


def test_a_stubborn_gateway_is_killed_after_its_time(start: Start) -> None:
    cluster = start("--shutdown-timeout-s", "0", gateway="stubborn")
    cluster.until_ready()
    assert cluster.end() == 0
    assert "gateway did not end within 5 s: killing it" in cluster.text()
    assert cluster.left() == []


def test_children_die_with_a_killed_supervisor(start: Start) -> None:
    cluster = start()
    cluster.until_ready()
    cluster.process.kill()
    cluster.process.wait()
    cluster.until(lambda: not cluster.left())
