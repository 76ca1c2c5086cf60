from __future__ import annotations

import json

import numpy as np
import pytest

from gguf_files import LLAMA, write_gguf
from octavo.errors import InvalidInput
from octavo.hub.resolve import resolve_model


def write_folder(folder, *, shards=("model.safetensors",), index=None, **files):
    folder.mkdir(exist_ok=True)
    for name in shards:
        (folder / name).write_bytes(b"\x02\0\0\0\0\0\0\0{}" + name.encode())
    files = {"config": {"architectures": ["LlamaForCausalLM"], "eos_token_id": 2}} | files
    if index is not None:
        files["model.safetensors.index"] = {"weight_map": index}
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def test_a_folder_with_safetensors(tmp_path):
    folder = write_folder(tmp_path / "m", tokenizer={})
    files = resolve_model(str(folder))
    assert (files.name, files.format, files.weights) == (str(folder), "safetensors", (folder / "model.safetensors",))
    assert files.tokenizer_source == folder
    assert files.eos_token_ids == (2,)


def test_the_index_names_the_shards(tmp_path):
    folder = write_folder(
        tmp_path / "m",
        shards=("a.safetensors", "b.safetensors", "c.safetensors"),
        index={"x": "b.safetensors", "y": "a.safetensors"},
    )
    assert [p.name for p in resolve_model(str(folder)).weights] == ["a.safetensors", "b.safetensors"]


def test_a_missing_shard_is_named(tmp_path):
    folder = write_folder(tmp_path / "m", shards=("a.safetensors",), index={"x": "b.safetensors", "y": "a.safetensors"})
    with pytest.raises(InvalidInput, match=r"lacks b\.safetensors"):
        resolve_model(str(folder))


def test_an_index_cannot_name_files_outside_the_folder(tmp_path):
    folder = write_folder(tmp_path / "m", index={"x": "../secret.safetensors"})
    with pytest.raises(InvalidInput, match="no usable files"):
        resolve_model(str(folder))


def test_eos_ids_come_from_generation_config_config_and_tokenizer(tmp_path):
    folder = write_folder(
        tmp_path / "m",
        generation_config={"eos_token_id": [7, 2]},
        tokenizer_config={"eos_token": "<end>", "added_tokens_decoder": {"9": {"content": "<end>"}}},
    )
    assert resolve_model(str(folder)).eos_token_ids == (7, 2, 9)


def test_a_gguf_file_by_path_and_by_folder(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", LLAMA, {"token_embd.weight": np.zeros((10, 32))})
    for given in (str(path), str(tmp_path)):
        files = resolve_model(given)
        assert (files.name, files.format, files.weights, files.tokenizer_source) == (given, "gguf", (path,), path)


def test_several_gguf_files_in_a_folder_are_listed(tmp_path):
    for name in ("a", "b"):
        write_gguf(tmp_path / f"{name}.gguf", LLAMA)
    with pytest.raises(InvalidInput, match=r"found: a\.gguf, b\.gguf"):
        resolve_model(str(tmp_path))


def test_dummy_weights_need_only_a_configuration(tmp_path):
    folder = write_folder(tmp_path / "m", shards=())
    files = resolve_model(str(folder), load_format="dummy")
    assert (files.format, files.weights) == ("none", ())
    assert files.content_id.startswith("config:")


def test_the_content_id_follows_the_weights(tmp_path):
    folder = write_folder(tmp_path / "m")
    before = resolve_model(str(folder)).content_id
    assert resolve_model(str(write_folder(tmp_path / "copy"))).content_id == before
    (folder / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}" + b"model.safetensorz")
    assert resolve_model(str(folder)).content_id != before


def test_a_tokenizer_of_its_own(tmp_path):
    folder, other = write_folder(tmp_path / "m"), write_folder(tmp_path / "t", tokenizer={})
    assert resolve_model(str(folder)).tokenizer_source is None
    assert resolve_model(str(folder), tokenizer=str(other)).tokenizer_source == other


def test_generation_config_modes(tmp_path):
    folder = write_folder(tmp_path / "m", generation_config={"temperature": 0.5})
    other = write_folder(tmp_path / "g", generation_config={"top_k": 3})
    assert resolve_model(str(folder)).generation_config == {"temperature": 0.5}
    assert resolve_model(str(folder), generation_config="none").generation_config == {}
    assert resolve_model(str(folder), generation_config=str(other)).generation_config == {"top_k": 3}
    with pytest.raises(InvalidInput, match="must be auto, none, or a folder") as caught:
        resolve_model(str(folder), generation_config=str(tmp_path / "nowhere"))
    assert caught.value.param == "generation_config"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "got ''"),
        ("./nowhere", "no file or folder ./nowhere"),
        ("/nowhere/at/all", "no file or folder"),
        ("missing.gguf", "no file or folder"),
        ("two words", "must be a demo name"),
        ("a/b:c:d", "must be a demo name"),
    ],
)
def test_what_cannot_be_a_model_is_refused_at_once(given, said):
    with pytest.raises(InvalidInput, match=said) as caught:
        resolve_model(given)
    assert caught.value.param == "model"


def test_pickled_weights_are_refused(tmp_path):
    folder = write_folder(tmp_path / "m", shards=())
    (folder / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(InvalidInput, match="pickled weights are refused"):
        resolve_model(str(folder))


def test_an_edge_machine_needs_no_weights(tmp_path):
    folder = write_folder(tmp_path / "m", shards=(), tokenizer={})
    files = resolve_model(str(folder), need_weights=False)
    assert (files.weights, files.tokenizer_source) == ((), folder)
    with pytest.raises(InvalidInput, match=r"holds no \.safetensors weights"):
        resolve_model(str(folder))
