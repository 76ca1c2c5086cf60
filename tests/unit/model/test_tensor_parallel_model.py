import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from model_double import OneRank, ThreadRank, causal_attention

from octavo.engine.model.loader import load
from octavo.engine.model.registry import create_model
from octavo.errors import InvalidInput
from octavo.hub.files import ModelFiles
from octavo.testing.tiny_model import tiny_config


def logits(config, comm):
    model = create_model(config, torch.float32, "cpu", comm)
    load(model, ModelFiles("tiny", "none", config, (), None), "dummy", 3)
    ids = torch.arange(5, 25)
    with torch.inference_mode():
        hidden = model.forward(ids, torch.arange(20), causal_attention, lambda: None)
        return model.logits(hidden)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "opt"])
def test_two_ranks_compute_what_one_does(family):
    config = tiny_config(family, attention_bias=True, mlp_bias=True) if family == "llama" else tiny_config(family)
    parts, barrier = [None, None], threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda rank: logits(config, ThreadRank(rank, parts, barrier)), (0, 1))
    assert torch.equal(first, second)
    torch.testing.assert_close(first, logits(config, OneRank()), rtol=1e-4, atol=1e-5)


def test_ranks_that_do_not_divide_the_kv_heads_are_refused():
    comm = ThreadRank(0, [None] * 4, threading.Barrier(1))
    with pytest.raises(InvalidInput, match="tensor_parallel_size: got 4; must divide num_key_value_heads \\(2\\)"):
        create_model(tiny_config(), torch.float32, "cpu", comm)


def test_a_model_beats_once_a_layer():
    config = tiny_config(num_hidden_layers=3)
    model = create_model(config, torch.float32, "cpu", OneRank())
    load(model, ModelFiles("tiny", "none", config, (), None), "dummy", 3)
    beats = []
    model.forward(torch.tensor([1]), torch.tensor([0]), causal_attention, lambda: beats.append(1))
    assert len(beats) == 3
