"""The base install on the other Pythons that Octavo runs on, where this machine has them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from install_kit import run

VERSIONS = ("3.11", "3.12", "3.13")
OTHERS = [version for version in VERSIONS if version != "{}.{}".format(*sys.version_info)]


def interpreter(version: str) -> Path:
    """A Python of that version that can make a venv."""
    found = [Path(name) for name in [shutil.which(f"python{version}")] if name]
    found += sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for python in found:
        if subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0:
            return python
    pytest.skip(f"no Python {version} with venv here")


@pytest.mark.parametrize("version", OTHERS)
def test_base_install_works(version: str, wheel: Path, tmp_path: Path) -> None:
    run(interpreter(version), "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", f"octavo @ file://{wheel}")
    program = "import octavo.gateway.main, octavo.router.main, octavo.worker.main, octavo.client, octavo.llm"
    run(python, "-W", "error", "-c", program, cwd=tmp_path)
    assert run(python.with_name("octavo"), "--version", cwd=tmp_path).startswith("octavo ")
    assert "--router-port" in run(python.with_name("octavo"), "router", "--help", cwd=tmp_path)
