"""Fetching from a model hub, against a server on loopback that speaks its protocol."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from gguf_files import LLAMA, write_gguf
from hub_server import COMMIT, HubServer
from octavo.errors import InvalidInput, ModelNotFound, Unavailable
from octavo.hub.catalog import fetch_model, list_models
from octavo.hub.resolve import resolve_model

CONFIG = {"architectures": ["LlamaForCausalLM"], "eos_token_id": 2}


def as_json(value) -> bytes:
    return json.dumps(value).encode()


SHARDED = {
    "README.md": b"not needed",
    "config.json": as_json(CONFIG),
    "generation_config.json": as_json({"temperature": 0.6, "eos_token_id": [2, 5]}),
    "tokenizer.json": b"{}",
    "model.safetensors.index.json": as_json(
        {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    ),
    "model-00001-of-00002.safetensors": b"\x02\0\0\0\0\0\0\0{}" + b"1" * 50_000,
    "model-00002-of-00002.safetensors": b"\x02\0\0\0\0\0\0\0{}" + b"2" * 70_000,
    "consolidated.safetensors": b"another layout",
    "pytorch_model.bin": b"pickle",
}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    gguf = write_gguf(tmp_path / "m.gguf", LLAMA, {"token_embd.weight": np.zeros((10, 32))}).read_bytes()
    repositories = {
        "org/sharded": SHARDED,
        "org/quants": {"m-Q4_K_M.gguf": gguf, "m-Q8_0.gguf": gguf + b"\0", "mmproj-f16.gguf": b"", "README.md": b""},
        "org/pickled": {"config.json": as_json(CONFIG), "pytorch_model.bin": b""},
    }
    with HubServer(repositories) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield server


def test_a_sharded_repository(hub):
    seen = []
    files = resolve_model("org/sharded", progress=lambda what, fraction: seen.append((what, fraction)))
    assert [p.read_bytes() for p in files.weights] == [SHARDED[n] for n in sorted(SHARDED) if n.startswith("model-0")]
    assert (files.name, files.format, files.config) == ("org/sharded", "safetensors", CONFIG)
    assert (files.revision, files.content_id, files.eos_token_ids) == (COMMIT, COMMIT, (2, 5))
    assert files.generation_config["temperature"] == 0.6
    assert files.tokenizer_source == files.weights[0].parent
    assert set(hub.fetched()) == set(SHARDED) - {"README.md", "consolidated.safetensors", "pytorch_model.bin"}
    assert seen[-1] == ("fetching org/sharded (0.1 MB)", 1.0)
    assert all(0.0 <= fraction <= 1.0 for _, fraction in seen)


def test_a_process_without_weights_fetches_none(hub):
    files = resolve_model("org/sharded", need_weights=False)
    assert files.weights == ()
    assert files.content_id == COMMIT
    assert not [name for name in hub.fetched() if name.endswith(".safetensors")]


def test_what_is_cached_is_not_fetched_again(hub):
    first = resolve_model("org/sharded")
    hub.requests.clear()
    assert resolve_model("org/sharded") == first
    assert hub.fetched() == []


def test_a_quantization_by_name_in_any_case(hub):
    files = resolve_model("org/quants:q4_k_m")
    assert (files.name, files.format) == ("org/quants:q4_k_m", "gguf")
    assert files.tokenizer_source == files.weights[0]
    assert hub.fetched() == ["m-Q4_K_M.gguf"]


@pytest.mark.parametrize("model", ["org/quants:Q5_0", "org/quants"])
def test_the_quantizations_there_are_get_listed(hub, model):
    with pytest.raises(InvalidInput, match="there are: org/quants:Q4_K_M, org/quants:Q8_0"):
        resolve_model(model)
    assert hub.fetched() == []


def test_an_unknown_repository_is_named_with_what_was_tried(hub):
    with pytest.raises(ModelNotFound) as caught:
        resolve_model("org/nothing")
    for part in ("org/nothing", "no demo model", "no local path", hub.url, "by its path"):
        assert part in str(caught.value)


def test_an_unknown_revision(hub):
    with pytest.raises(ModelNotFound, match="org/sharded has no revision 'v9'") as caught:
        resolve_model("org/sharded", revision="v9")
    assert caught.value.param == "revision"


def test_pickled_weights_are_refused(hub):
    with pytest.raises(InvalidInput, match="pickled ones are refused"):
        resolve_model("org/pickled")


def test_the_token_is_sent(hub, monkeypatch):
    hub.token = "hf_secret"
    with pytest.raises(ModelNotFound) as caught:
        resolve_model("org/sharded")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert len(resolve_model("org/sharded").weights) == 2
    assert "hf_secret" not in str(caught.value)


def test_offline_an_unknown_id_fails_at_once(hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    start_s = time.monotonic()
    with pytest.raises(Unavailable, match=r"org/sharded .*HF_HUB_OFFLINE is set.*by its path"):
        resolve_model("org/sharded")
    assert time.monotonic() - start_s < 1.0
    assert hub.requests == []


def test_offline_the_cache_serves(hub, monkeypatch):
    online = resolve_model("org/sharded")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub.requests.clear()
    assert resolve_model("org/sharded") == online
    assert hub.requests == []


def test_an_unreachable_hub_fails_fast_or_serves_the_cache(hub, monkeypatch, caplog):
    resolve_model("org/sharded")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    start_s = time.monotonic()
    assert len(resolve_model("org/sharded").weights) == 2
    assert "using the cached copy of org/sharded" in caplog.text
    with pytest.raises(Unavailable, match=r"org/other .*http://127\.0\.0\.1:9 cannot be reached"):
        resolve_model("org/other")
    assert time.monotonic() - start_s < 3.0


def test_a_broken_connection_is_taken_up_where_it_broke(hub):
    name, data = "model.safetensors", b"\x02\0\0\0\0\0\0\0{}" + bytes(range(256)) * 60_000
    hub.repositories["org/large"] = {"config.json": as_json(CONFIG), name: data}
    hub.cuts[name] = [13_000_000]
    files = resolve_model("org/large")
    assert files.weights[0].read_bytes() == data
    ranges = [given for method, path, given in hub.requests if method == "GET" and path.endswith(name)]
    assert len(ranges) == 2
    assert 0 < int(ranges[1].removeprefix("bytes=").split("-")[0]) <= 13_000_000


def test_the_tokenizer_of_another_repository(hub):
    files = resolve_model("org/quants:Q8_0", tokenizer="org/sharded")
    assert (files.tokenizer_source / "tokenizer.json").read_bytes() == b"{}"
    assert not [name for name in hub.fetched() if name.endswith(".safetensors")]


def test_the_catalog_lists_what_was_fetched(hub):
    assert [e.source for e in list_models()] == ["demo"]
    assert fetch_model("org/quants:Q8_0").name == "m-Q8_0.gguf"
    folder = fetch_model("org/sharded")
    by_name = {e.name: e for e in list_models()}
    assert by_name["org/quants:Q8_0"].format == "gguf"
    sharded = by_name["org/sharded"]
    assert (sharded.format, sharded.path) == ("safetensors", folder)
    assert sharded.size == sum(len(SHARDED[n]) for n in SHARDED if n.startswith("model-0"))


def test_fetching_imports_no_torch(hub, tmp_path):
    code = (
        "import sys; from octavo.hub.resolve import resolve_model; "
        "from octavo.text import output, template, tokenizer; "
        "resolve_model('org/sharded'); print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
