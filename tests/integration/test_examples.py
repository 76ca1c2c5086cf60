"""Every script under examples/ runs and says what it should, with a tiny model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.testing.tiny_model import write_tiny_model

ROOT = Path(__file__).parents[2]

RUNS = {
    "basic.py": ([], ["'The capital of France is' → ", "'def fibonacci(n):' → "]),
    "chat.py": ([], ["user: And of Italy?\nassistant: ", "prompt tokens from the cache)"]),
    "generate.py": (
        ["--temperature=0.8", "--top-p=0.9", "--n=2", "--seed=7", "--max-tokens=5", "--generation-config=none", "Hi"],
        ["temperature=0.8", "'Hi' [0, ", "'Hi' [1, "],
    ),
    "async_llm.py": (["--max-num-seqs=4"], ["[france] ", "[water] ", "cancelled: its blocks are free again"]),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny", max_position_embeddings=2048)


def run(script, *arguments):
    paths = [str(ROOT / part) for part in ("shared", "services", "kernels")]
    return subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", str(script), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_every_example_has_a_run():
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_example_runs_and_prints_its_answers(name, model):
    arguments, expected = RUNS[name]
    done = run(ROOT / "examples" / name, f"--model={model}", *arguments)
    assert done.returncode == 0, done.stderr
    for text in expected:
        assert text in done.stdout
