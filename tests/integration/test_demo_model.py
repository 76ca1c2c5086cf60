"""Fetching a demo model with the real pip, from a wheel made here."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from gguf_files import LLAMA, write_gguf
from octavo.errors import Unavailable
from octavo.hub import demo
from octavo.hub.catalog import list_models
from octavo.hub.resolve import resolve_model

NAME = "smollm2-135m"


def write_wheel(folder, member, data):
    """A wheel `octavo_demo_part-1.0` that holds one file."""
    info = "octavo_demo_part-1.0.dist-info"
    files = {
        member: data,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: octavo-demo-part\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b'=').decode()},{len(body)}"
        for name, body in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    with zipfile.ZipFile(folder / "octavo_demo_part-1.0-py3-none-any.whl", "w") as wheel:
        for name, body in files.items():
            wheel.writestr(name, body)


@pytest.fixture
def model(tmp_path, monkeypatch):
    data = write_gguf(tmp_path / "m.gguf", LLAMA, {"token_embd.weight": np.zeros((10, 32))}).read_bytes()
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    write_wheel(wheels, "part/tiny.gguf", data)
    for name in [n for n in os.environ if n.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path / "cache"))
    tiny = replace(
        demo.DEMO_MODELS[NAME],
        requirement="octavo-demo-part==1.0",
        member="part/tiny.gguf",
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
    )
    monkeypatch.setitem(demo.DEMO_MODELS, NAME, tiny)
    return tiny


def left_behind(model):
    return sorted(p.name for p in model.path.parent.iterdir())


def test_the_file_is_taken_out_of_the_wheel_once(model, monkeypatch):
    seen = []
    assert list_models()[0].path is None
    files = resolve_model(NAME, progress=lambda what, fraction: seen.append(fraction))
    assert (files.name, files.weights) == (NAME, (model.path,))
    assert hashlib.sha256(model.path.read_bytes()).hexdigest() == model.sha256
    assert seen[0] == 0.0
    assert seen[-1] == 1.0
    assert left_behind(model) == [".lock", "tiny.gguf"]
    assert list_models()[0].path == model.path
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert resolve_model(NAME).weights == (model.path,)


def test_a_file_that_is_not_the_pinned_one_is_refused(model, monkeypatch):
    monkeypatch.setitem(demo.DEMO_MODELS, NAME, replace(model, sha256="0" * 64))
    with pytest.raises(Unavailable, match=f"has sha256 {model.sha256}; {'0' * 64} is expected"):
        resolve_model(NAME)
    assert left_behind(model) == [".lock"]


def test_what_a_killed_fetch_left_is_cleared_away(model):
    stale = model.path.parent / "fetch-dead"
    stale.mkdir(parents=True)
    (stale / "model.part").write_bytes(b"half")
    resolve_model(NAME)
    assert left_behind(model) == [".lock", "tiny.gguf"]


def test_an_interpreter_without_pip_is_told_how_to_get_it(model, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"has no pip; run .* -m ensurepip"):
        resolve_model(NAME)


def test_a_damaged_file_is_fetched_again(model):
    resolve_model(NAME)
    model.path.write_bytes(model.path.read_bytes()[:100])
    assert resolve_model(NAME).config["hidden_size"] == 32


def test_a_package_that_pip_cannot_get_is_named(model, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    with pytest.raises(Unavailable, match=r"pip could not get octavo-demo-part==1\.0: .*local"):
        resolve_model(NAME)


def test_processes_that_fetch_at_once_share_one_download(model, tmp_path):
    code = (
        "import sys; from dataclasses import replace; from octavo.hub import demo; "
        "demo.DEMO_MODELS['smollm2-135m'] = replace(demo.DEMO_MODELS['smollm2-135m'], "
        f"requirement={model.requirement!r}, member={model.member!r}, sha256={model.sha256!r}, size={model.size}); "
        "fetched = []; print(demo.fetch_demo('smollm2-135m', lambda what, fraction: fetched.append(fraction))); "
        "print(bool(fetched))"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    running = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    lines = [process.communicate(timeout=60)[0].splitlines() for process in running]
    assert [path for path, _ in lines] == [str(model.path)] * 3
    assert sorted(did for _, did in lines) == ["False", "False", "True"]


@pytest.mark.parametrize("cache", ["/proc/octavo", "a file"])
def test_a_cache_that_cannot_be_written_is_named(model, monkeypatch, tmp_path, cache):
    folder = tmp_path / "file" if cache == "a file" else cache
    if cache == "a file":
        folder.write_text("")
    monkeypatch.setenv("OCTAVO_CACHE", str(folder))
    with pytest.raises(Unavailable, match=rf"the cache {folder} \(OCTAVO_CACHE chooses another\) cannot take it"):
        resolve_model(NAME)


def test_a_full_disk_is_told_before_pip_runs_into_it(model, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(demo.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(Unavailable, match=r"smollm2-135m needs 93 MB, 0 MB are free"):
        resolve_model(NAME)
    assert left_behind(model) == [".lock"]
