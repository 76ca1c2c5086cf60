"""`octavo up` with the real services on the tiny model: serving, Ctrl-C with open streams, deaths, bad starts."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from octavo.testing.tiny_model import write_tiny_model
from octavo.testing.up_cluster import ClusterFailed, UpCluster

LIMIT_S = 60.0

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def cluster(model: Path) -> Iterator[UpCluster]:
    with UpCluster(model, "--served-model-name", "tiny") as started:
        yield started


def complete(cluster: UpCluster, num_tokens: int = 5) -> dict:
    body = {"model": "tiny", "prompt": "one two", "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True}
    return cluster.get("/v1/completions", body)


class Stream:
    """A streaming completion that has given its first chunk."""

    def __init__(self, cluster: UpCluster, num_tokens: int) -> None:
        self.connection = http.client.HTTPConnection(cluster.http, timeout=LIMIT_S)
        body = {"model": "tiny", "prompt": "one", "max_tokens": num_tokens, "stream": True, "ignore_eos": True}
        self.connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()
        assert self.response.readline().startswith(b"data: ")

    def rest(self) -> bytes:
        return self.response.read()

    def close(self) -> None:
        self.response.close()
        self.connection.close()


def until(is_so: Callable[[], bool], cluster: UpCluster) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, cluster.output()[-4000:]
        time.sleep(0.05)


def is_serving(cluster: UpCluster) -> bool:
    try:
        return complete(cluster)["usage"]["completion_tokens"] == 5
    except (OSError, http.client.HTTPException):
        return False


def test_what_it_prints_works(model: Path) -> None:
    with UpCluster(model) as cluster:
        text = cluster.output()
        curl = text[text.index("  curl -s") : text.index("  openai.OpenAI")]
        answer = json.loads(subprocess.run(["sh", "-c", curl], capture_output=True, check=True, timeout=LIMIT_S).stdout)
        assert answer["model"] == str(model)
        assert answer["choices"][0]["finish_reason"] in ("stop", "length")
        assert f'base_url="{cluster.url}/v1"' in text
        assert cluster.grpc in text
        roles = [len(cluster.processes(role)) for role in ("router", "worker", "gateway", "up")]
        assert roles == [1, 1, 1, 1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_with_open_streams_lets_them_end(cluster: UpCluster, number: signal.Signals) -> None:
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(contextlib.closing(Stream(cluster, 40))) for _ in range(8)]
        cluster.send(number)
        bodies = [stream.rest() for stream in streams]
    assert all(body.rstrip().endswith(b"data: [DONE]") for body in bodies), cluster.output()[-2000:]
    assert cluster.process.wait(LIMIT_S) == 0, cluster.output()[-4000:]
    assert cluster.processes() == []


@pytest.mark.parametrize("role", ["worker", "gateway", "router"])
def test_a_killed_service_is_restarted_and_serves_again(cluster: UpCluster, role: str) -> None:
    first = complete(cluster)["choices"][0]["text"]
    [old] = cluster.processes(role)
    old.kill()
    until(lambda: f"{role} is ready again" in cluster.output(), cluster)
    until(lambda: is_serving(cluster), cluster)
    assert complete(cluster)["choices"][0]["text"] == first
    assert [process.pid for process in cluster.processes(role)] != [old.pid]
    assert cluster.stop() == 0
    assert cluster.processes() == []


def test_two_workers_serve_and_end(model: Path) -> None:
    with UpCluster(model, "--served-model-name", "tiny", "--workers", "2") as cluster:
        assert len(cluster.processes("worker")) == 2
        assert len(cluster.get("/server_info")["workers"]) == 2
        assert is_serving(cluster)
        assert cluster.stop() == 0
        assert cluster.processes() == []


def octavo(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "octavo.cli", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, start_new_session=True)


def test_an_unknown_model_is_refused_before_anything_starts() -> None:
    done = octavo("up", "/no/such/model")
    assert done.returncode == 2
    assert done.stderr.rstrip().endswith("octavo: error: model: there is no file or folder /no/such/model")


def test_a_model_that_no_engine_can_load_ends_everything(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "broken")
    (folder / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(ClusterFailed, match=r"(?i)worker.*model\.safetensors|worker.*safetensors"):
        UpCluster(folder)
    done = octavo("up", str(folder), "--port", "0")
    assert done.returncode in (1, 2)
    assert "octavo: error: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("flag", ["--port", "--grpc-port", "--router-port", "--worker-port"])
def test_a_taken_port_is_named_at_once(model: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        argv = ["--port", "0"] if flag != "--port" else []
        done = octavo("up", str(model), *argv, flag, str(port))
    assert done.returncode == 1
    name = flag[2:].replace("-", "_")
    assert f"octavo: error: {name}: got {port}; the port is in use by another process" in done.stderr


def test_serve_takes_the_model_as_flag_or_positional(model: Path) -> None:
    done = octavo("serve", str(model), "--model", "other")
    assert done.returncode == 2
    assert "names another; give one of the two" in done.stderr
