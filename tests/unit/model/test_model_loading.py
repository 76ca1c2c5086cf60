import pytest
import torch
from model_double import OneRank
from safetensors.torch import load_file, save_file

from octavo.engine.model.loader import load
from octavo.engine.model.registry import create_model
from octavo.errors import InvalidInput
from octavo.hub.files import ModelFiles
from octavo.testing.tiny_model import tiny_config, write_tiny_model


def make(config):
    return create_model(config, torch.float32, "cpu", OneRank())


def files_of(config, *paths, form="safetensors"):
    return ModelFiles("tiny", form, config, tuple(paths), None)


def held(config, files, *settings, dtype=torch.float32):
    """Every weight by name, as it lies in a model that was filled from `files`."""
    model = create_model(config, dtype, "cpu", OneRank())
    slots = dict(model.weights._slots)
    load(model, files, *settings)
    return {name: slot.target for name, slot in slots.items()}


@pytest.mark.parametrize("family", ["llama", "smollm2", "qwen2", "qwen3", "opt"])
def test_every_weight_arrives_where_its_name_says(family, tmp_path):
    folder = write_tiny_model(tmp_path, family)
    stored = load_file(folder / "model.safetensors")
    got = held(tiny_config(family), files_of(tiny_config(family), folder / "model.safetensors"))
    assert got.keys() == stored.keys()
    for name, value in stored.items():
        assert torch.equal(got[name], value), name


def test_sharded_files_load_as_one(tmp_path):
    stored = load_file(write_tiny_model(tmp_path) / "model.safetensors")
    names = list(stored)
    for index, part in enumerate((names[::2], names[1::2])):
        save_file({name: stored[name] for name in part}, tmp_path / f"part{index}.safetensors")
    got = held(tiny_config(), files_of(tiny_config(), tmp_path / "part0.safetensors", tmp_path / "part1.safetensors"))
    assert torch.equal(got["lm_head.weight"], stored["lm_head.weight"])


def test_missing_unknown_and_misshapen_weights_are_listed_in_one_error(tmp_path):
    stored = load_file(write_tiny_model(tmp_path) / "model.safetensors")
    del stored["model.norm.weight"]
    stored["model.layers.7.extra.weight"] = torch.zeros(2)
    stored["lm_head.weight"] = torch.zeros(512, 32)
    save_file(stored, tmp_path / "bad.safetensors")
    with pytest.raises(InvalidInput) as caught:
        load(make(tiny_config()), files_of(tiny_config(), tmp_path / "bad.safetensors"))
    message = str(caught.value)
    assert "model.norm.weight: got no weight of this name; the model needs one of shape (64,)" in message
    assert "model.layers.7.extra.weight: got a weight of this name; the model has no such weight" in message
    assert "lm_head.weight: got shape (512, 32); must be (512, 64)" in message


def test_names_without_the_model_prefix_are_known_too(tmp_path):
    stored = load_file(write_tiny_model(tmp_path, "opt") / "model.safetensors")
    save_file({n.removeprefix("model."): v for n, v in stored.items()}, tmp_path / "short.safetensors")
    got = held(tiny_config("opt"), files_of(tiny_config("opt"), tmp_path / "short.safetensors"))
    assert torch.equal(got["model.decoder.embed_tokens.weight"], stored["model.decoder.embed_tokens.weight"])


def test_a_tied_model_takes_a_checkpoint_that_holds_the_head_as_well(tmp_path):
    stored = load_file(write_tiny_model(tmp_path, "smollm2") / "model.safetensors")
    stored["lm_head.weight"] = stored["model.embed_tokens.weight"].clone()
    save_file(stored, tmp_path / "both.safetensors")
    load(make(tiny_config("smollm2")), files_of(tiny_config("smollm2"), tmp_path / "both.safetensors"))


def test_a_broken_file_is_an_invalid_input(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"not tensors")
    with pytest.raises(InvalidInput, match="no readable safetensors file"):
        load(make(tiny_config()), files_of(tiny_config(), path))


def test_an_unknown_load_format_is_refused():
    with pytest.raises(InvalidInput, match="load_format: got 'pickle'; must be one of"):
        load(make(tiny_config()), files_of(tiny_config()), "pickle")


def test_a_load_format_that_the_files_do_not_have_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="load_format: got 'gguf'; the model's files are of format 'safetensors'"):
        load(make(tiny_config()), files_of(tiny_config(), tmp_path / "x"), "gguf")


def test_dummy_weights_are_a_function_of_the_seed():
    config = tiny_config("qwen3")
    a, b, c = (held(config, files_of(config, form="none"), "dummy", seed) for seed in (1, 1, 2))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["lm_head.weight"], c["lm_head.weight"])
    assert float(a["model.norm.weight"].mean()) == pytest.approx(1.0, abs=0.01)


def test_progress_rises_from_0_to_1(tmp_path):
    folder = write_tiny_model(tmp_path)
    seen = []
    load(make(tiny_config()), files_of(tiny_config(), folder / "model.safetensors"), progress=seen.append)
    assert seen[0] == 0.0
    assert seen[-1] == 1.0
    assert seen == sorted(seen)


def test_bfloat16_weights_keep_their_bits(tmp_path):
    stored = load_file(write_tiny_model(tmp_path) / "model.safetensors")
    half = {name: value.bfloat16() for name, value in stored.items()}
    save_file(half, tmp_path / "half.safetensors")
    got = held(tiny_config(), files_of(tiny_config(), tmp_path / "half.safetensors"), dtype=torch.bfloat16)
    assert all(torch.equal(value, half[name]) for name, value in got.items())
