"""`make serve` in a minimal Debian that has Python, pip, venv and make, and no way to an index."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from install_kit import ROOT, ask, free_port, run

from terminal import CTRL_C, Terminal

PACKAGES = "python3,python3-venv,python3-pip,make"
SUITES = {(3, 11): "bookworm", (3, 13): "trixie"}
"""The Debian whose Python is this one, since the wheelhouse holds wheels for this Python."""
DEBOOTSTRAP_LIMIT_S = 900.0
START_LIMIT_S = 600.0
STOP_LIMIT_S = 60.0

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture
def debian_root(tmp_path: Path, wheelhouse: Path) -> Iterator[Path]:
    """A minimal Debian with the wheelhouse and this tree inside."""
    suite = SUITES.get(sys.version_info[:2])
    if suite is None:
        pytest.skip("no Debian has this Python")
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("needs root and debootstrap")
    root = tmp_path / "debian"
    run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, root, timeout=DEBOOTSTRAP_LIMIT_S)
    shutil.copytree(wheelhouse, root / "wheelhouse", copy_function=link_or_copy)
    for name in run("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        if name and (ROOT / name).is_file():
            target = root / "octavo" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    yield root
    shutil.rmtree(root, ignore_errors=True)


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def processes_in(root: Path) -> list[str]:
    """Command lines of the processes whose root is `root`."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.path.samefile(entry / "root", root):
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def test_make_serve_on_minimal_debian(debian_root: Path, tmp_path: Path) -> None:
    port = free_port()
    # No torch index can be reached, so the wheelhouse alone is asked.
    make = f"make serve TORCH_CPU_INDEX=http://127.0.0.1:9 ARGS='--port {port} --grpc-port 0'"
    inside = f"mount -t proc proc /proc && cd /octavo && exec {make}"
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb"}
    env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheelhouse"}
    terminal = Terminal(["unshare", "--mount", "chroot", str(debian_root), "/bin/sh", "-c", inside], tmp_path, env)
    is_ready = terminal.read_until("Ctrl-C ends it.", time.monotonic() + START_LIMIT_S)
    answers = [answer_to_capital(port)] if is_ready else []
    terminal.press(CTRL_C)
    terminal.read_to_end(time.monotonic() + STOP_LIMIT_S)
    code = terminal.close()
    assert is_ready, terminal.text[-4000:]
    assert answers == ["The capital of France is Paris."]
    assert code == 0, terminal.text[-4000:]
    assert processes_in(debian_root) == []


def answer_to_capital(port: int) -> str:
    question = {"role": "user", "content": "What is the capital of France?"}
    body = {"model": "smollm2-135m", "messages": [question], "temperature": 0, "max_tokens": 12}
    return ask(port, "/v1/chat/completions", body)["choices"][0]["message"]["content"]
