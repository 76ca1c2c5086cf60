"""The layer that puts out logits."""

import torch

from octavo.engine.model.linear import HeadLinear, Place
from octavo.engine.parallel.comm import Comm


def test_logits_of_a_bfloat16_model_keep_the_precision_of_float32():
    generator = torch.Generator().manual_seed(3)
    head = HeadLinear(Place(torch.bfloat16, torch.device("cpu"), Comm()), 64, 512)
    head.weight.copy_(torch.randn(512, 64, generator=generator))
    hidden = torch.randn(3, 64, generator=generator).bfloat16()
    expected = hidden.double() @ head.weight.double().T
    head.finish()
    logits = head(hidden)
    assert logits.dtype == torch.float32
    assert (logits.double() - expected).abs().max() < 1e-4
