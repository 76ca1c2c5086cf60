from __future__ import annotations

import numpy as np
import pytest

from gguf_files import LLAMA, write_gguf
from octavo.cli.command import models
from octavo.errors import InvalidInput


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    """Empty caches of this test's own."""
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "octavo"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


def test_the_list_shows_demo_models_before_they_are_fetched(capsys):
    assert models.run([], {}) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.split()[:4] == ["smollm2-135m", "gguf", "98.4", "MB"]
    assert line.endswith("[not fetched]")


def test_the_list_shows_what_the_hub_cache_holds(caches, capsys):
    snapshot = caches / "hub" / "models--org--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "m-Q8_0.gguf").write_bytes(b"x" * 2_000_000)
    (snapshot / "model.safetensors").write_bytes(b"x" * 500_000)
    models.run(["list"], {})
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["org/name:Q8_0"].endswith(f"[{snapshot / 'm-Q8_0.gguf'}]")
    assert lines["org/name"].split()[1:4] == ["safetensors", "0.5", "MB"]


def test_fetch_prints_the_path(caches, capsys):
    path = write_gguf(caches / "m.gguf", LLAMA, {"token_embd.weight": np.zeros((10, 32))})
    assert models.run(["fetch", str(path)], {}) == 0
    assert capsys.readouterr().out.strip() == str(path)


def test_fetch_of_what_is_no_model_is_refused():
    with pytest.raises(InvalidInput, match=r"no file or folder \./nowhere"):
        models.run(["fetch", "./nowhere"], {})
