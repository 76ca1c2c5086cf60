"""The wheel without an extra: gateway and router run, and what needs the engine says what to install."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from install_kit import clean_env, free_port, install, run, status, until

LIMIT_S = 60.0
COMMANDS = ("gateway", "models", "router", "serve", "up", "worker")


@pytest.fixture(scope="module")
def bin_dir(wheelhouse: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("base") / "venv", wheelhouse, wheel, "")


def octavo(bin_dir: Path, folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [str(bin_dir / "octavo"), *argv]
    return subprocess.run(command, cwd=folder, env=clean_env(), capture_output=True, text=True, timeout=LIMIT_S)


def test_the_wheel_is_typed_and_holds_octavo_alone(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"octavo"}
    assert {"octavo/py.typed", "octavo/pb/public_pb2.pyi", "octavo/pb/public_pb2_grpc.py"} <= set(names)
    assert "octavo/__init__.py" not in names


def test_it_brings_no_torch(bin_dir: Path, tmp_path: Path) -> None:
    listed = run(bin_dir / "python", "-m", "pip", "list", cwd=tmp_path, env=clean_env())
    assert not {"torch", "transformers"} & set(listed.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(bin_dir: Path, tmp_path: Path, command: str) -> None:
    done = octavo(bin_dir, tmp_path, command, "--help")
    assert done.returncode == 0, done.stderr
    assert f"usage: octavo {command}" in done.stdout


def test_help_lists_the_commands(bin_dir: Path, tmp_path: Path) -> None:
    lines = octavo(bin_dir, tmp_path, "--help").stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == list(COMMANDS)


def test_models_lists_the_demo_model(bin_dir: Path, tmp_path: Path) -> None:
    assert "smollm2-135m" in octavo(bin_dir, tmp_path, "models").stdout


@pytest.mark.parametrize("argv", [["up"], ["serve"], ["worker", "--router", "127.0.0.1:9"]], ids=lambda argv: argv[0])
def test_commands_with_an_engine_say_what_to_install(
    bin_dir: Path, tiny_model: Path, tmp_path: Path, argv: list[str]
) -> None:
    done = octavo(bin_dir, tmp_path, *argv, str(tiny_model))
    assert done.returncode == 1
    assert done.stderr.endswith(
        "octavo: error: the engine needs torch and safetensors, not installed here: pip install 'octavo[worker]'\n"
    )


def test_the_python_api_says_what_to_install(bin_dir: Path, tmp_path: Path) -> None:
    program = (
        "from octavo.errors import Unavailable\nfrom octavo.llm import LLM\n"
        "try:\n    LLM('smollm2-135m')\nexcept Unavailable as error:\n    print(error.message)\n"
    )
    assert "octavo[worker]" in run(bin_dir / "python", "-c", program, cwd=tmp_path, env=clean_env())


@contextmanager
def service(bin_dir: Path, folder: Path, *argv: str) -> Iterator[Path]:
    """A running service; its log file.  Ended by SIGTERM, which must give exit code 0."""
    log = folder / f"{argv[0]}.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [str(bin_dir / "octavo"), *argv], cwd=folder, env=clean_env(), stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield log
        process.terminate()
        assert process.wait(LIMIT_S) == 0, log.read_text()[-4000:]
    finally:
        process.kill()
        process.wait()


def test_router_and_gateway_run(bin_dir: Path, tiny_model: Path, tmp_path: Path) -> None:
    router, http = free_port(), free_port()
    with ExitStack() as stack:
        stack.enter_context(service(bin_dir, tmp_path, "router", "--router-port", str(router)))
        gateway = ("gateway", str(tiny_model), "--router", f"127.0.0.1:{router}", "--port", str(http))
        log = stack.enter_context(service(bin_dir, tmp_path, *gateway, "--grpc-port", "0"))
        until(lambda: status(http, "/health") == 200, LIMIT_S, log.read_text)
        assert status(http, "/ready") == 503
