"""The wheel in clean environments: without torch, with the worker extra, and in a minimal Debian root."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tarfile
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from install_kit import ROOT, run, served

CHAT = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}
DEBIAN_PACKAGES = "python3,python3-venv,python3-pip,make"


def clean_env(**extra: str) -> dict[str, str]:
    """The environment without anything that points at this checkout."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PIP_CONFIG_FILE")}
    return {**kept, "OMP_NUM_THREADS": "1", "PIP_NO_INDEX": "1", **extra}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def install(folder: Path, wheelhouse: Path, wheel: Path, extra: str) -> Path:
    """A new venv with the wheel; its bin folder."""
    venv.create(folder, with_pip=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "-q", "--no-index", "--find-links", wheelhouse]
    run(*pip, f"octavo{extra} @ file://{wheel}", env=clean_env())
    return folder / "bin"


def test_base_install_has_no_torch_and_runs(wheelhouse: Path, wheel: Path, tmp_path: Path) -> None:
    bin_dir = install(tmp_path / "venv", wheelhouse, wheel, "")
    listed = run(bin_dir / "python", "-m", "pip", "list", cwd=tmp_path, env=clean_env())
    assert "torch" not in listed.split()
    assert "octavo" in run(bin_dir / "octavo", "--version", cwd=tmp_path, env=clean_env())
    assert "--router-port" in run(bin_dir / "octavo", "router", "--help", cwd=tmp_path, env=clean_env())
    program = "import octavo.gateway.main, octavo.router.main, sys; print('torch' in sys.modules)"
    assert run(bin_dir / "python", "-c", program, cwd=tmp_path, env=clean_env()).strip() == "False"


def test_base_install_says_what_the_engine_needs(
    wheelhouse: Path, wheel: Path, tiny_model: Path, tmp_path: Path
) -> None:
    bin_dir = install(tmp_path / "venv", wheelhouse, wheel, "")
    command = [str(bin_dir / "octavo"), "up", str(tiny_model), "--port", "0"]
    done = subprocess.run(command, cwd=tmp_path, env=clean_env(), capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "octavo[worker]" in done.stdout + done.stderr


def test_worker_install_serves_from_anywhere(wheelhouse: Path, wheel: Path, tiny_model: Path, tmp_path: Path) -> None:
    bin_dir = install(tmp_path / "venv", wheelhouse, wheel, "[worker]")
    port = free_port()
    command = [str(bin_dir / "octavo"), "up", str(tiny_model), "--port", str(port), "--served-model-name", "tiny"]
    with served(command, port, cwd=tmp_path, env=clean_env()) as ask:
        answer = ask("/v1/chat/completions", {**CHAT, "model": "tiny", "max_tokens": 4})
        assert answer["usage"]["completion_tokens"] >= 1


@pytest.fixture
def debian_root(tmp_path: Path, wheelhouse: Path) -> Iterator[Path]:
    """A minimal Debian with Python, pip, venv and make, the wheelhouse and this tree inside."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("needs root and debootstrap")
    root = tmp_path / "debian"
    run("debootstrap", "--variant=minbase", f"--include={DEBIAN_PACKAGES}", "bookworm", root, timeout=900)
    shutil.copytree(wheelhouse, root / "wheelhouse")
    archive = tmp_path / "tree.tar"
    run("git", "-C", ROOT, "archive", "-o", archive, "HEAD")
    with tarfile.open(archive) as tar:
        tar.extractall(root / "octavo", filter="data")
    yield root
    shutil.rmtree(root, ignore_errors=True)


def test_make_serve_on_minimal_debian(debian_root: Path) -> None:
    port = free_port()
    inside = f"mount -t proc proc /proc && cd /octavo && exec make serve ARGS='--port {port}'"
    command = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "chroot",
        str(debian_root),
        "/bin/sh",
        "-c",
        inside,
    ]
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "PIP_NO_INDEX": "1"}
    env |= {"PIP_FIND_LINKS": "/wheelhouse"}
    with served(command, port, env=env) as ask:
        answer = ask("/v1/chat/completions", {**CHAT, "model": "smollm2-135m", "max_tokens": 12})
        assert "Paris" in answer["choices"][0]["message"]["content"]
