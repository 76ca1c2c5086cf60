"""Every fenced block of the documents works: Python and curl against a real cluster, commands by what they name."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from octavo.testing.up_cluster import UpCluster

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LIMIT_S = 120.0
ENV = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("shared", "services", "kernels")),
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Block:
    """One fenced block; `place` is its file and line."""

    place: str
    language: str
    text: str


def blocks() -> list[Block]:
    found = []
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            place = f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"
            found.append(Block(place, match[1], match[2]))
    return found


def split_commands(text: str) -> Iterator[str]:
    """The commands of a shell block, which may go on over several lines by a backslash or an open quote."""
    command = ""
    for line in text.replace("\\\n", " ").splitlines():
        command += line + "\n"
        try:
            words = shlex.split(command, comments=True)
        except ValueError:
            continue  # a quote is still open
        if words:
            yield command.strip()
        command = ""
    assert not command, f"no closing quotation: {command}"


def commands() -> list[tuple[str, str]]:
    """(place, command) of every shell block."""
    return [
        (block.place, command) for block in blocks() if block.language == "sh" for command in split_commands(block.text)
    ]


PYTHON = [block for block in blocks() if block.language == "python"]
COMMANDS = commands()


@pytest.fixture(scope="module")
def demo_cluster() -> Iterator[UpCluster]:
    with UpCluster("smollm2-135m") as cluster:
        yield cluster


def at(cluster: UpCluster, text: str) -> str:
    """`text` with the documented addresses replaced by those of `cluster`."""
    return text.replace("127.0.0.1:8000", cluster.http).replace("127.0.0.1:8001", cluster.grpc)


def test_blocks_are_of_kinds_that_are_tested() -> None:
    assert {block.language for block in blocks()} <= {"python", "sh", ""}
    assert len(PYTHON) >= 3
    assert any(command.startswith("curl ") for _, command in COMMANDS)


@pytest.mark.cluster
@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.place)
def test_python_block_runs_and_prints(block: Block, demo_cluster: UpCluster, tmp_path: Path) -> None:
    program = at(demo_cluster, block.text)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=ENV, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def run_curl(command: str, cluster: UpCluster) -> None:
    done = subprocess.run(["sh", "-c", at(cluster, command)], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["choices"][0]["message"]["content"].strip()


def run_make(words: list[str]) -> None:
    """The target exists, and make could carry it out."""
    done = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr


def run_octavo(words: list[str]) -> None:
    command = [sys.executable, "-m", "octavo.cli", words[1], "--help"]
    done = subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert [word for word in words[2:] if word.startswith("--") and word not in done.stdout] == []


def run_pip(words: list[str]) -> None:
    """`pip install octavo[EXTRA]` names extras that the project has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, extras = re.fullmatch(r"(\w+)(?:\[(.*)\])?", words[-1]).groups()  # type: ignore[union-attr]
    assert words[:-1] == ["pip", "install"]
    assert name == project["name"]
    assert set((extras or "").split(",")) <= {"", *project["optional-dependencies"]}


CHECKS = {"make": run_make, "octavo": run_octavo, "pip": run_pip}


@pytest.mark.cluster
@pytest.mark.parametrize(("place", "command"), COMMANDS, ids=[" ".join(c.split()[:3]) for _, c in COMMANDS])
def test_shell_line_works(place: str, command: str, request: pytest.FixtureRequest) -> None:
    words = shlex.split(command, comments=True)
    if words[0] == "curl":
        run_curl(command, request.getfixturevalue("demo_cluster"))
    else:
        assert words[0] in CHECKS, f"{place}: nothing here tests {words[0]}"
        CHECKS[words[0]](words)
