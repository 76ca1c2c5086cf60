import json

import pytest
import torch
from model_double import OneRank

from octavo.engine.model.registry import create_model
from octavo.errors import InvalidInput
from octavo.testing.tiny_model import tiny_config


def create(config, **settings):
    return create_model(config, torch.float32, "cpu", OneRank(), **settings)


def test_an_unknown_architecture_is_refused_in_one_line_that_names_the_supported_ones():
    with pytest.raises(InvalidInput) as caught:
        create({**tiny_config(), "architectures": ["GPT5ForCausalLM"]})
    message = str(caught.value)
    assert "GPT5ForCausalLM" in message
    assert "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, OPTForCausalLM" in message
    assert "\n" not in message


def test_a_config_without_architectures_is_refused():
    with pytest.raises(InvalidInput, match="architectures: got \\[\\]"):
        create({"hidden_size": 64})


def test_a_quantized_checkpoint_is_refused():
    with pytest.raises(InvalidInput, match="quantization_config: got 'gptq'"):
        create(tiny_config(quantization_config={"quant_method": "gptq"}))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rms_norm_eps": "x"}, "rms_norm_eps: got 'x'; the model's config needs a number above 0"),
        ({"rms_norm_eps": None}, "rms_norm_eps: got None"),
        ({"rope_scaling": "linear"}, "rope_scaling: got 'linear'; must be an object"),
        ({"rope_parameters": [1]}, r"rope_parameters: got \[1\]; must be an object"),
        ({"rope_parameters": {"rope_type": ["yarn"]}}, "rope_type: got .*; must be one of"),
        ({"rope_theta": "big"}, "rope_theta: got 'big'; must be a number above 0"),
        ({"quantization_config": "awq"}, "quantization_config: got 'awq'; only unquantized"),
        ({"architectures": 5}, "architectures: got 5; supported are"),
        ({"hidden_act": ["silu"]}, "hidden_act|config.json: a value has another type"),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": "wide"}, "config.json: a value has another type"),
    ],
)
def test_a_config_value_of_another_type_is_refused(wrong, message):
    with pytest.raises(InvalidInput, match=message):
        create(tiny_config(**{"rope_parameters": None, **wrong}))


def test_sizes_come_from_the_config():
    model = create(tiny_config("qwen3"))
    assert (model.num_heads, model.num_kv_heads, model.head_dim, model.vocab_size) == (4, 2, 32, 512)
    assert [g.layers for g in model.groups] == [(0, 1)]
    assert model.max_position == 1024


@pytest.mark.parametrize("family", ["llama", "opt"])
def test_a_length_beyond_the_models_own_is_refused(family):
    assert create(tiny_config(family), max_model_len=100).max_position == 100
    with pytest.raises(InvalidInput, match="max_model_len: got 1025; the model takes at most 1024"):
        create(tiny_config(family), max_model_len=1025)


def test_rope_scaling_given_as_json_extends_the_length():
    scaling = json.dumps({"rope_type": "linear", "factor": 2})
    assert create(tiny_config(), max_model_len=2048, rope_scaling=scaling).max_position == 2048


def test_rope_scaling_is_refused_for_a_model_without_rope():
    with pytest.raises(InvalidInput, match=r"rope_scaling: .*learned positions"):
        create(tiny_config("opt"), rope_scaling={"rope_type": "linear", "factor": 2})


def test_an_unknown_activation_is_refused():
    with pytest.raises(InvalidInput, match="hidden_act: got 'xielu'; must be one of"):
        create(tiny_config(hidden_act="xielu"))


def test_heads_that_do_not_divide_are_refused():
    with pytest.raises(InvalidInput, match="num_key_value_heads: got 3; must divide num_attention_heads"):
        create(tiny_config(num_key_value_heads=3))


@pytest.mark.parametrize("family", ["llama", "opt"])
def test_a_config_that_lacks_sizes_lists_them(family):
    config = tiny_config(family, hidden_size="64")
    del config["vocab_size"]
    with pytest.raises(InvalidInput, match=r"vocab_size: got None; .*; hidden_size: got '64'"):
        create(config)
