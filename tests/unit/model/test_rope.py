import pytest
import torch

from octavo.engine.model.rope import RopeTable, read_rope
from octavo.errors import InvalidInput

BASE = {"max_position_embeddings": 64, "rope_theta": 5000.0}


def test_both_forms_of_config_say_the_same():
    old = read_rope({**BASE, "rope_scaling": {"type": "linear", "factor": 2.0}}, 16)
    new = read_rope(
        {
            "max_position_embeddings": 64,
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0},
        },
        16,
    )
    assert (old.kind, old.theta, old.factor) == (new.kind, new.theta, new.factor) == ("linear", 5000.0, 2.0)


def test_an_override_replaces_the_scaling_and_keeps_theta():
    config = {**BASE, "rope_scaling": {"type": "linear", "factor": 2.0}}
    spec = read_rope(config, 16, '{"rope_type": "yarn", "factor": 4}')
    assert (spec.kind, spec.theta, spec.original_length, spec.max_position) == ("yarn", 5000.0, 64, 256)


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"rope_type": "longrope"}, "rope_scaling.rope_type: got 'longrope'; must be one of"),
        ({"rope_type": "linear"}, "rope_scaling.factor: got nothing; linear needs it"),
        ({"rope_type": "dynamic", "factor": -1}, "rope_scaling.factor: got -1; must be a number above 0"),
        ({"rope_type": "llama3", "factor": 8}, "rope_scaling.low_freq_factor: got nothing; llama3 needs it; rope"),
        ({"full_attention": {"rope_type": "default"}}, "rope_parameters: got ['full_attention']; one set of RoPE"),
        ("{", "rope_scaling: got '{'; must be a JSON object"),
    ],
)
def test_a_bad_scaling_is_refused(scaling, message):
    with pytest.raises(InvalidInput) as caught:
        read_rope(BASE, 16, scaling)
    assert message in str(caught.value)


def test_partial_rotation_is_refused():
    with pytest.raises(InvalidInput, match=r"partial_rotary_factor: got 0\.5"):
        read_rope({**BASE, "partial_rotary_factor": 0.5}, 16)


@pytest.mark.parametrize("kind", ["default", "linear", "dynamic", "yarn"])
def test_a_rotation_depends_on_its_position_alone(kind):
    spec = read_rope(BASE, 16, {"rope_type": kind, "factor": 4.0})
    short = RopeTable(spec, 100, torch.float32, torch.device("cpu"))
    long = RopeTable(spec, spec.max_position if kind != "default" else 128, torch.float32, torch.device("cpu"))
    assert torch.equal(short.cos, long.cos[:100])
    assert torch.equal(short.sin, long.sin[:100])


def test_dynamic_is_unscaled_up_to_the_original_length():
    plain = RopeTable(read_rope(BASE, 16), 80, torch.float32, torch.device("cpu"))
    scaled = RopeTable(
        read_rope(BASE, 16, {"rope_type": "dynamic", "factor": 4.0}), 80, torch.float32, torch.device("cpu")
    )
    torch.testing.assert_close(scaled.cos[:64], plain.cos[:64])
    assert not torch.allclose(scaled.cos[64:], plain.cos[64:])
