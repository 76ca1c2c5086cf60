import json
import subprocess
import sys

import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from octavo.errors import InvalidInput
from octavo.testing.tiny_model import FAMILIES, tiny_config, write_tiny_model
from octavo.testing.tiny_tokenizer import EOS_ID, merges, vocabulary


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_gives_the_same_folder(family, tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        write_tiny_model(tmp_path / name, family, seed)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_overrides_shape_the_weights(tmp_path):
    folder = write_tiny_model(tmp_path, "qwen3", num_hidden_layers=1, intermediate_size=96)
    weights = load_file(folder / "model.safetensors")
    assert weights["model.layers.0.mlp.up_proj.weight"].shape == (96, 64)
    assert "model.layers.1.mlp.up_proj.weight" not in weights
    assert json.loads((folder / "config.json").read_text())["num_hidden_layers"] == 1


def test_an_unknown_family_is_refused():
    with pytest.raises(InvalidInput, match="family: got 'gpt5'; must be one of"):
        tiny_config("gpt5")


def test_every_merge_is_made_of_earlier_tokens():
    known = set(list(vocabulary())[:256])
    for left, right in merges():
        assert {left, right} <= known
        known.add(left + right)
    assert len(vocabulary()) == 512


def test_the_tokenizer_round_trips_any_text(tmp_path):
    folder = write_tiny_model(tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text in ("The sheet is folded.", "naïve 折り紙 👩‍🚀\n\t", "<|im_start|>user\nhi<|im_end|>"):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
    assert tokenizer.encode("a<|im_end|>").ids == [97, EOS_ID]
    assert len(tokenizer.encode("the water").ids) < 9


def test_writing_needs_neither_torch_nor_transformers():
    code = "import sys, octavo.testing.tiny_model; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
